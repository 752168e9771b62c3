"""Clipping without a gradient per record: what every layer read and what came back is enough.

The model is run for one record with a *tap* added to the output of every layer that has a rule
(`calipers.training.layer_rules`): a zero, of the shape of the output. The gradient in a tap is what comes back to the
layer; what the layer read is kept beside it. This function of one record is mapped over the batch, like the plain
gradient, so that no layer ever sees two records at once and nothing can mix them. Parameters without a rule (norms,
positions, whatever a model holds) keep their mapped gradients.

**A rule that does not hold of a model.** A weight that is also used elsewhere (tied weights) has gradients that its
layer never sees. Before the first batch the gradients of a record that is made up are computed both ways; parameters
where they differ, and layers that were not called, lose their rule. Made up, because the choice acts on the gradients
of everybody: were it made by somebody's record, that record would show beyond its own clipped gradient. Where the model
cannot read such a record, no rule is used. A rule that is wrong can spoil the training and not the privacy: what is
summed is clipped, whatever it is, and depends on one record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from calipers.training.inputs import leaves, mapped
from calipers.training.layer_rules import LayerRule, rule_for
from calipers.training.mapping import OverRecords
from calipers.training.torch_library import random_layers, torch_module

__all__ = ["BookKeeping"]

_AGREE = 1e-2
"""Relative difference between two ways to compute one gradient: far above any rounding, far below a lost part."""

_AGREE_ROUGHLY = 1e-1
"""The same where products are computed with 8 bits."""

RecordLoss = Callable[[dict[str, Any], Any, Any], Any]
Forward = Callable[[dict[str, Any], Any], Any]


class BookKeeping:
    """The layers of a model that have a rule, and how to run it with taps; decided anew for every shape of record."""

    def __init__(
        self, model: Any, named: dict[str, Any], record_loss: RecordLoss, outputs: Forward, *, exact: bool = True
    ) -> None:
        self._torch = torch_module()
        self._over_records = OverRecords(torch_module("torch.func").grad(self._tapped, argnums=(0, 1), has_aux=True), 3)
        self._model, self._named, self._record_loss, self._forward = model, named, record_loss, outputs
        self._agree = _AGREE if exact else _AGREE_ROUGHLY
        every = [id(p) for _, p in model.named_parameters(remove_duplicate=False)]
        self._rules: dict[str, LayerRule] = {}
        for name, layer in model.named_modules():
            rule, weight = rule_for(layer), f"{name}.weight" if name else "weight"
            if rule is not None and weight in named and every.count(id(named[weight])) == 1:
                self._rules[name] = rule
        self._checked: dict[object, dict[str, list[Any]]] = {}

    def __bool__(self) -> bool:
        """Whether any layer has a rule."""
        return bool(self._rules)

    def prepare(self, records: Any, labels: Any, each: Callable[..., dict[str, Any]], current: dict[str, Any]) -> int:
        """Try a made-up record of this shape: sizes of the taps, and whether the rules hold.

        How many numbers are held per record is returned, once for every shape; 0 if nothing was to be done.
        """
        key = _shape(records)
        if key in self._checked or not self._rules:
            return 0
        device = next(iter(current.values())).device
        record = mapped(lambda rows: rows.to(device), self._made_up(records))
        label = mapped(lambda rows: self._torch.zeros_like(rows[:1], device=device), labels)
        try:
            with random_layers(0, device):
                self._checked[key] = self._outputs(record, current)
            with random_layers(0, device):
                expected = each(current, record, label)
            with random_layers(0, device):
                loose, kept = self.gradients(record, label, current)
        except (RuntimeError, ValueError, IndexError, TypeError):
            self._rules.clear()
            return 0
        wrong = [name for name, calls in kept.items() if not self._agrees(name, calls, expected)]
        wrong += [name for name in self._rules if name not in kept]
        if wrong:
            for name in wrong:
                del self._rules[name]
            self._checked.clear()
            return self.prepare(records, labels, each, current)
        held = [self._held(name, calls) for name, calls in kept.items()]
        return sum(held) + sum(int(p[0].numel()) for p in loose.values())

    def _made_up(self, records: Any, name: str = "") -> Any:
        """One record of the shape of these, with nothing of them in it; tokens are known to every embedding.

        What is called a mask hides nothing, and what is called a label is 0, which every model knows.
        """
        torch = self._torch
        if isinstance(records, Mapping):
            return {inner: self._made_up(part, inner) for inner, part in records.items()}
        if isinstance(records, list | tuple):
            return tuple(self._made_up(part) for part in records)
        generator = torch.Generator().manual_seed(0)
        shape, dtype = (1, *records.shape[1:]), records.dtype
        if "mask" in name or "label" in name:
            found = torch.full(shape, int("mask" in name))
        elif dtype.is_floating_point:
            found = torch.randn(shape, generator=generator)
        else:
            tables = [m.num_embeddings for m in self._model.modules() if isinstance(m, torch.nn.Embedding)]
            found = torch.randint(0, 2 if dtype == torch.bool else min([*tables, 128]), shape, generator=generator)
        return found.to(dtype)

    def _held(self, name: str, calls: list[tuple[Any, Any]]) -> int:
        """Numbers per record that a layer's rule works on."""
        rule, (rows, back) = self._rules[name], self.joined(name, calls)
        written = 0 if rule.pays(rows, back) else int(rule.layer.weight.numel())
        return int(rows.numel() + back.numel()) + written

    def _agrees(self, name: str, calls: list[tuple[Any, Any]], expected: dict[str, Any]) -> bool:
        rule = self._rules[name]
        rows, back = self.joined(name, calls)
        found = [(rule.total(rows, back), expected[_weight(name)][0])]
        if self.bias_of(name) is not None:
            found.append((back.sum(dim=(0, 1)), expected[f"{_stem(name)}bias"][0]))
        return all(bool((ours - theirs).norm() <= _AGREE * theirs.norm()) for ours, theirs in found)

    def bias_of(self, name: str) -> str | None:
        """The name of the trained bias of a layer, if there is one."""
        bias = f"{_stem(name)}bias"
        return bias if self._rules[name].has_bias and bias in self._named else None

    def rule(self, name: str) -> LayerRule:
        """The rule of a layer."""
        return self._rules[name]

    @property
    def ruled(self) -> set[str]:
        """The names of the parameters that need no mapped gradient."""
        biases = {bias for name in self._rules if (bias := self.bias_of(name)) is not None}
        return {_weight(name) for name in self._rules} | biases

    def gradients(
        self, records: Any, labels: Any, current: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, list[tuple[Any, Any]]]]:
        """(mapped gradients of all other parameters, what every layer read and what came back, call by call)."""
        taps = self._checked[_shape(records)]
        ruled = self.ruled
        loose = {name: p for name, p in current.items() if name not in ruled}
        fixed = {name: p for name, p in current.items() if name in ruled}
        (others, back), read = self._over_records(loose, taps, fixed, records, labels)
        return others, {name: list(zip(read[name], back[name], strict=True)) for name in taps}

    def joined(self, name: str, calls: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """All positions of all calls of a layer, as one sequence of rows and one of what came back."""
        rule, cat = self._rules[name], self._torch.cat
        rows = [rule.rows(read) for read, _ in calls]
        back = [rule.returned(gradient, read).to(rule.layer.weight.dtype) for read, gradient in calls]
        if rule.kind != "embedding":  # of mixed precision: any function of the record may be clipped
            rows = [part.to(rule.layer.weight.dtype) for part in rows]
        return (rows[0], back[0]) if len(calls) == 1 else (cat(rows, dim=1), cat(back, dim=1))

    def _tapped(
        self, loose: dict[str, Any], taps: dict[str, list[Any]], fixed: dict[str, Any], record: Any, label: Any
    ) -> tuple[Any, dict[str, list[Any]]]:
        read: dict[str, list[Any]] = {name: [] for name in taps}

        def tap(name: str, inputs: Any, output: Any) -> Any:
            calls = read[name]
            calls.append(inputs)
            return output + taps[name][len(calls) - 1]

        with self._hooked(tap, taps):
            return self._record_loss({**loose, **fixed}, record, label), read

    def _outputs(self, records: Any, current: dict[str, Any]) -> dict[str, list[Any]]:
        """Zeros like every output of every layer with a rule that is called."""
        found: dict[str, list[Any]] = {}

        def note(name: str, inputs: Any, output: Any) -> Any:
            found.setdefault(name, []).append(self._torch.zeros_like(output))
            return output

        with self._torch.no_grad(), self._hooked(note, self._rules):
            self._forward(current, records)
        return found

    @contextmanager
    def _hooked(self, hook: Callable[[str, Any, Any], Any], names: Any) -> Iterator[None]:
        handles = [
            self._rules[name].layer.register_forward_hook(
                lambda _, inputs, output, name=name: hook(name, inputs[0], output)
            )
            for name in names
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _stem(name: str) -> str:
    return f"{name}." if name else ""


def _weight(name: str) -> str:
    return f"{_stem(name)}weight"


def _shape(records: Any) -> object:
    return tuple((*tensor.shape[1:], tensor.dtype) for tensor in leaves(records))
