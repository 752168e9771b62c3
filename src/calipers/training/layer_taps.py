"""One run of a model by the rules of its layers, and one way back: what is written down meanwhile.

Inside `torch.func.vmap` a layer is called with what stands for one record. `All` steps outside: its rule for being
mapped is given the tensors of all records, runs the layer on them, and lets a *tap* see what comes back, also where no
gradient would (at the first layer's output, of which nothing is kept). A layer that reads nothing of the record
(positions) is run for every record, so that what comes back is not the sum over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from calipers.training.layer_products import Accuracy, Products, Rewritten
from calipers.training.layer_rules import Calls, Groups, LayerRule
from calipers.training.torch_library import torch_module

__all__ = ["Entries", "Pass"]


@dataclass
class Entries:
    """What is known of the gradients of all records when the way back is done.

    `written`: gradients (records, ...) by parameter. `products`: what others are products of, and the bounds on their
    norms, (a, b) as in `calipers.training.layer_products`. `called`: the layers that were.
    """

    written: dict[str, Any] = field(default_factory=dict)
    arrange: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    products: dict[str, list[Products | Rewritten]] = field(default_factory=dict)
    bounds: list[tuple[Any, Any]] = field(default_factory=list)
    called: set[str] = field(default_factory=set)

    @property
    def held(self) -> int:
        """Numbers that are kept."""
        kept = sum(part.held for parts in self.products.values() for part in parts)
        return kept + sum(int(gradient.numel()) for gradient in self.written.values())

    def sums(self, factors: Any) -> dict[str, Any]:
        """The sum over the records of factor times gradient, flat, by parameter: for checks, on few records."""
        found = {name: self.in_order(name, factors @ gradient.flatten(1)) for name, gradient in self.written.items()}
        return found | {name: self.total(name, factors) for name in self.products}

    def in_order(self, name: str, gradient: Any) -> Any:
        """A flat gradient in the order of the parameter."""
        return self.arrange[name](gradient) if name in self.arrange else gradient

    def total(self, name: str, factors: Any) -> Any:
        """The weighted sum of a parameter whose gradients are products."""
        parts, done, found = self.products[name], 0, None
        for part in parts:
            own = part.total(factors[done : done + part.records])
            found, done = own if found is None else found + own, done + part.records
        return found

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """The records of all parts, one after the other."""
        cat, first = torch_module().cat, parts[0]
        if len(parts) == 1:
            return first
        return cls(
            {name: cat([part.written[name] for part in parts]) for name in first.written},
            first.arrange,
            {name: [one for part in parts for one in part.products[name]] for name in first.products},
            [
                (cat([norm for norm, _ in bounds]), cat([small for _, small in bounds]))
                for bounds in zip(*(part.bounds for part in parts), strict=True)
            ],
            first.called,
        )


class Pass:
    """One run for `records` records. `mapping`: within `vmap`; else for a single record."""

    def __init__(self, records: int, accuracy: Accuracy, dtype: Any, *, mapping: bool) -> None:
        self._records, self._accuracy, self._dtype, self._mapping = records, accuracy, dtype, mapping
        self._start: Any = None
        self._copies: list[tuple[str, Any]] = []
        self._open: dict[str, list[_Call]] = {}
        self._rules: dict[str, tuple[LayerRule, list[str]]] = {}
        self._entries = Entries()
        self.token: Any = None

    def copies(self, name: str, parameter: Any) -> Any:
        """The parameter for every record; the gradients are those of the records."""
        found = parameter.detach().expand(self._records, *parameter.shape).requires_grad_()
        self._copies.append((name, found))
        return found

    def layer(self, stem: str, rule: LayerRule, trained: list[str]) -> Callable[[Any], Any]:
        """What is called in the place of a layer; `stem` begins the names of its `trained` parameters."""
        name = stem[:-1]
        self._rules[name] = rule, trained

        def forward(input: Any) -> Any:
            if not self._mapping:
                return self._run(name, input.unsqueeze(0)).squeeze(0)
            return _all().apply(self.token, input, lambda inputs: self._run(name, inputs))

        return forward

    def _run(self, name: str, inputs: Any) -> Any:
        """The layer on (records, ...)."""
        rule, trained = self._rules[name]
        self._entries.called.add(name)
        if isinstance(rule, Groups):
            parts = ("weight", "bias")[: len(trained)]
            copies = {part: getattr(rule.layer, part).detach().repeat(self._records, 1) for part in parts}
            self._copies += [(path, copies[part].requires_grad_()) for path, part in zip(trained, parts, strict=True)]
            return rule.run_with(inputs, copies)
        outputs = rule.run(inputs)
        if self._start is None:
            self._start = torch_module().zeros((), device=outputs.device, requires_grad=True)
        call = _Call(inputs.detach())
        calls = self._open.setdefault(name, [])
        calls.append(call)

        def came_back(gradient: Any) -> None:
            call.back = gradient
            if all(one.back is not None for one in calls):
                self._settle(name)

        return _tap().apply(outputs, self._start, came_back)

    def _settle(self, name: str) -> None:
        """Write down what is needed of a layer, and let go of the rest."""
        (rule, trained), dtype = self._rules[name], self._dtype
        calls: Calls = []
        for call in self._open.pop(name):
            if call.back is not None:
                # Of mixed precision: any function of the record may be clipped.
                read = call.read.to(dtype) if call.read.dtype.is_floating_point else call.read
                calls.append((read, call.back.to(dtype)))
            call.read = call.back = None  # the way back still holds the call
        if not calls:
            return
        entries, weight = self._entries, trained[0]
        tables = rule.pays(calls)
        kept = tables or rule.spares(calls)
        products = rule.on_cores(calls) if self._accuracy.short else None
        if products is not None:
            tables = kept = kept or products.spares  # nothing has to be written for the norms
        else:
            if kept:
                calls = [(self._accuracy.cut(read), self._accuracy.cut(back)) for read, back in calls]
            products = rule.products(calls)
        for path in trained:
            part = path.rpartition(".")[2]
            if part == "bias" or products is None:
                entries.written[path] = rule.gradients(calls)[part]
        if products is not None and kept:
            book = products if tables else Rewritten(products)
            entries.products[weight] = [book]
            entries.bounds.append(book.norms(self._accuracy))
        elif products is not None:
            entries.written[weight], entries.arrange[weight] = products.each(), products.arranged
            products.let_go()  # `arranged` holds them

    def finish(self, losses: Any) -> Entries:
        """Go back from the losses of all records."""
        self.token = None
        places = [tensor for _, tensor in self._copies] + ([] if self._start is None else [self._start])
        gradients = torch_module().autograd.grad(losses.sum(), places, allow_unused=True)
        for name in list(self._open):  # some call had no part in the loss
            self._settle(name)
        for (path, copies), gradient in zip(self._copies, gradients, strict=False):
            if gradient is not None:
                before = self._entries.written.get(path)
                self._entries.written[path] = gradient if before is None else before + gradient
            else:
                self._entries.written.setdefault(path, copies.detach() * 0.0)
        return self._entries


@dataclass
class _Call:
    """What a layer read, and what came back when it has."""

    read: Any
    back: Any = None


@cache
def _all() -> Any:
    """Run `function` on the inputs of all records; PyTorch is imported when this is first needed."""
    torch = torch_module()

    class All(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(token: Any, inputs: Any, function: Callable[[Any], Any]) -> Any:
            raise RuntimeError("vmap is needed to see all records.")

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, token: Any, inputs: Any, function: Callable[[Any], Any]) -> Any:
            place = in_dims[1]
            if place is None:
                inputs = inputs.expand(info.batch_size, *inputs.shape)
            return function(inputs if place is None else inputs.movedim(place, 0)), 0

    return All


@cache
def _tap() -> Any:
    """Pass everything on, and show what comes back to `heard`; `start` makes a way back where there was none."""
    torch = torch_module()

    class Tap(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx: Any, outputs: Any, start: Any, heard: Callable[[Any], None]) -> Any:
            ctx.heard = heard
            return outputs.view_as(outputs)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            ctx.heard(gradient)
            return gradient, None, None

    return Tap
