"""Clipping without a gradient per record: what every layer read and what came back is enough.

The model is run for one record and that is mapped over the batch (`torch.func.vmap`), so that whatever it does, it
cannot mix two records. Layers that have a rule (`calipers.training.layer_rules`) are the exception: they are known not
to mix, and take all records at once. One ordinary backward pass follows, through all records together: as no record
enters the loss of another, what comes back at the place of a record is its own gradient. On its way it passes every
layer with a rule, whose norms are computed there and then; what is needed for the weighted sum is kept, everything else
is let go. Weights with a rule take no part in the backward pass. Parameters without one (positions, whatever a model
holds) are given to every record as a copy of its own, and the gradients of the copies are those of the records.

**A rule that does not hold of a model.** A weight that is also used elsewhere (tied weights) has gradients that its
layer never sees. Before the first batch the gradients of a record that is made up are computed both ways; layers where
they differ, and layers that were not called, lose their rule. Made up, because the choice acts on the gradients
of everybody: were it made by somebody's record, that record would show beyond its own clipped gradient. Where the model
cannot read such a record, no rule is used. A rule that is wrong can spoil the training and not the privacy: what is
summed is clipped, whatever it is, and depends on one record.

**A model that remembers** (a hidden state that is kept in an attribute, a list of what was read) carries records into
the gradients of those after them, and neither `vmap` nor running records one by one prevents it. The gradient of the
record that is made up is therefore computed once more after that of another one, and has to be the same. (Where the
model cannot read it, nothing is tried.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from calipers.training.inputs import OverRecords, count, gathered, leaves, mapped
from calipers.training.layer_products import Accuracy
from calipers.training.layer_rules import Embedding, LayerRule, padded, rule_for
from calipers.training.layer_taps import Entries, Pass
from calipers.training.torch_library import random_layers, torch_module

_AGREE = 1e-2
"""Relative difference between two ways to compute one gradient: far above any rounding, far below a lost part."""

_AGREE_ROUGHLY = 1e-1
"""The same where products are computed with 8 bits."""

_SAME = 1e-6
"""Relative difference between two computations of one gradient in one way, on a CPU."""

_FAR = 1e3
"""How much larger the other record is: what a slow average keeps of it is seen too."""

RecordLoss = Callable[[dict[str, Any], Any, Any], Any]


class BookKeeping:
    """The layers of a model that have a rule, and how to run it with them; decided anew for every shape of record."""

    def __init__(self, model: Any, named: dict[str, Any], record_loss: RecordLoss, *, exact: bool = True) -> None:
        self._torch = torch_module()
        self._model, self._named, self._record_loss = model, named, record_loss
        self._agree = _AGREE if exact else _AGREE_ROUGHLY
        every = [id(p) for _, p in model.named_parameters(remove_duplicate=False)]
        self._rules: dict[str, LayerRule] = {}
        for name, layer in model.named_modules():
            rule, weight = rule_for(layer), f"{_stem(name)}weight"
            if rule is not None and weight in named and every.count(id(named[weight])) == 1:
                self._rules[name] = rule
        self._checked: set[object] = set()
        self._one_by_one = self.remembers = False

    def __bool__(self) -> bool:
        """Whether any layer has a rule."""
        return bool(self._rules)

    def prepare(self, records: Any, labels: Any, each: OverRecords, current: dict[str, Any]) -> int:
        """Try a made-up record of this shape: whether the rules hold.

        How many numbers are held per record is returned, once for every shape; 0 if nothing was to be done.
        """
        key = tuple((*tensor.shape[1:], tensor.dtype) for tensor in leaves(records))
        if key in self._checked:
            return 0
        device = next(iter(current.values())).device
        record, other = (mapped(lambda rows: rows.to(device), self._made_up(records, seed)) for seed in (0, 1))
        label = mapped(lambda rows: self._torch.zeros_like(rows[:1], device=device), labels)

        def alone(which: Any) -> dict[str, Any]:
            with random_layers(0, device):
                return dict(each(current, which, label))

        try:
            expected = alone(record)
            self._one_by_one = each.refused is not None
            alone(other)
            self.remembers |= not self._same(alone(record), expected)
            if not self._rules:
                return self._done(key)
            with random_layers(0, device):
                found = self.gradients(record, label, current, Accuracy.of(self._dtype, False))
        except (RuntimeError, ValueError, IndexError, TypeError):
            return self._done(key, mapped=True)
        one = self._torch.ones(1, dtype=self._dtype, device=device)
        right = self._right(found.sums(one), expected)
        wrong = [n for n in self._rules if n not in found.called or not right.issuperset(self._trained(n))]
        if wrong:
            for name in wrong:
                del self._rules[name]
            return self.prepare(records, labels, each, current)
        if len(right) < len(current):  # copies that PyTorch does not follow; the mapped gradient is what it is
            return self._done(key, mapped=True)
        return self._done(key, held=found.held)

    def _done(self, key: object, *, mapped: bool = False, held: int = 0) -> int:
        """Records of this shape were tried; `mapped`: no rule is used."""
        self._checked.add(key)
        if mapped:
            self._rules.clear()
        return held

    def _same(self, found: dict[str, Any], expected: dict[str, Any]) -> bool:
        """Whether two gradients are one, or no numbers (as on the device "meta"); a GPU may add in another order."""
        share, some = _SAME, next(iter(expected.values()))
        if some.is_meta:
            return True
        if some.is_cuda:
            share = max(self._agree / 10.0, 2.0 * self._torch.finfo(self._dtype).eps)
        apart = sum((found[name] - expected[name]).double().square().sum() for name in expected)
        whole = sum(gradient.double().square().sum() for gradient in expected.values())
        return not bool(apart > share**2 * whole)

    def _made_up(self, records: Any, seed: int, name: str = "") -> Any:
        """One record of the shape of these, with nothing of them in it; tokens are known to every embedding.

        What is called a mask hides nothing, and what is called a label is 0, which every model knows.
        """
        torch = self._torch
        if isinstance(records, Mapping):
            return {inner: self._made_up(part, seed, inner) for inner, part in records.items()}
        if isinstance(records, list | tuple):
            return tuple(self._made_up(part, seed) for part in records)
        generator = torch.Generator().manual_seed(seed)
        shape, dtype = (1, *records.shape[1:]), records.dtype
        if "mask" in name or "label" in name:
            found = torch.full(shape, int("mask" in name))
        elif dtype.is_floating_point:
            found = torch.randn(shape, generator=generator) * _FAR**seed
        else:
            tables = [m.num_embeddings for m in self._model.modules() if isinstance(m, torch.nn.Embedding)]
            found = torch.randint(0, 2 if dtype == torch.bool else min([*tables, 128]), shape, generator=generator)
        return found.to(dtype)

    def _right(self, found: dict[str, Any], expected: dict[str, Any]) -> set[str]:
        """The parameters whose gradient of one record is the one that was expected."""
        right = set()
        for name, theirs in expected.items():
            ours = found.get(name, self._torch.zeros_like(theirs)).reshape(theirs.shape)
            if bool((ours - theirs).norm() <= self._agree * theirs.norm()):
                right.add(name)
        return right

    def _trained(self, name: str) -> list[str]:
        """The names of the parameters of a layer with a rule."""
        bias = f"{_stem(name)}bias"
        return [f"{_stem(name)}weight"] + ([bias] if self._rules[name].has_bias and bias in self._named else [])

    @property
    def _dtype(self) -> Any:
        return next(iter(self._named.values())).dtype

    @property
    def ruled(self) -> set[str]:
        """The names of the parameters that are given to all records as one."""
        return {part for name in self._rules for part in self._trained(name)}

    def gradients(self, records: Any, labels: Any, current: dict[str, Any], accuracy: Accuracy) -> Entries:
        """What is known of the gradients of all records; one record at least."""
        if self._one_by_one:
            places = [slice(row, row + 1) for row in range(count(records))]
            alone = [(gathered(records, place), gathered(labels, place)) for place in places]
            return Entries.joined([self._together(record, label, current, accuracy) for record, label in alone])
        return self._together(records, labels, current, accuracy)

    def _together(self, records: Any, labels: Any, current: dict[str, Any], accuracy: Accuracy) -> Entries:
        number, ruled = count(records), self.ruled
        one_pass = Pass(number, accuracy, self._dtype, mapping=not self._one_by_one)
        loose = {name: one_pass.copies(name, p) for name, p in current.items() if name not in ruled}
        fixed = {name: p for name, p in current.items() if name in ruled}

        def loss(token: Any, own: dict[str, Any], record: Any, label: Any) -> Any:
            one_pass.token = token
            return self._record_loss({**fixed, **own}, record, label)

        tokens = self._torch.zeros(number, device=next(iter(current.values())).device)
        with self._torch.enable_grad(), self._replaced(one_pass):
            if self._one_by_one:
                losses = loss(tokens[0], *gathered((loose, records, labels), 0))
            else:
                # "different": layers that draw random numbers draw them per record.
                losses = self._torch.func.vmap(loss, randomness="different")(tokens, loose, records, labels)
        return one_pass.finish(losses)

    @contextmanager
    def _replaced(self, one_pass: Pass) -> Iterator[None]:
        """Layers with a rule run by it, and embeddings without one know their padding also where tables are copies."""
        places = {name: one_pass.layer(_stem(name), rule, self._trained(name)) for name, rule in self._rules.items()}
        for name, layer in self._model.named_modules():
            if name not in places and isinstance(rule_for(layer), Embedding) and layer.padding_idx is not None:
                places[name] = partial(padded, layer)
        layers = [self._model.get_submodule(name) for name in places]
        try:
            for layer, function in zip(layers, places.values(), strict=True):
                layer.forward = function
            yield
        finally:
            for layer in layers:
                vars(layer).pop("forward", None)


def _stem(name: str) -> str:
    return f"{name}." if name else ""
