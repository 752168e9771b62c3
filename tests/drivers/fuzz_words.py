"""What a fuzzed command line says: options, run files and values, ordinary ones and the extremes of their domains."""

from __future__ import annotations

import random
from typing import Any

from calipers.schemes import SAMPLERS
from calipers.theorems.registry import THEOREMS

Words = list[str]
COUNTS = (1, 2, 3, 10, 97, 1000, 60_000, 10**6, 10**9, 10**12, 2**53, 10**15, 0, -1, 10**300)
SMALL_COUNTS = (1, 2, 3, 5, 10, 30, 100)
PARTS = (1e-300, 5e-324, 1e-100, 1e-16, 1e-9, 1e-5, 0.01, 0.1, 0.5, 0.999999, 1 - 2**-53, 1.0, 0.0, 1e-308)
USUAL_PARTS = (1e-5, 1e-3, 0.01, 0.1, 0.3, 0.5)
SIZES = (1e-300, 5e-324, 1e-9, 1e-3, 0.02, 0.1, 0.5, 1.0, 3.0, 100.0, 709.9, 1e5, 1e10, 1e15, 1e300, 1.7e308, 0.0, -1.0)
USUAL_SIZES = (0.3, 0.5, 0.7, 1.0, 2.0, 5.0)
OTHERS = ("nan", "inf", "-inf", "", "1e", "0x10", "1,5", "٣", "1e-400", "true", "9" * 400, "'", "[[", "\ud7ff", "-")
CHOICES = {
    "sampler": SAMPLERS,
    "adjacency": ("add-remove", "zero-out", "substitute"),
    "view": ("worst-case", "isolated"),
    "normalization": ("none", "constant", "expected", "expected-floor", "realized"),
    "last_batch": ("drop", "keep"),
    "reshuffle": ("every-epoch", "once"),
    "derived_rate": ("public", "moving"),
}
OWN = {"max_batch_size": "truncated-poisson", "cycle": "cyclic-poisson", "participations": "random-allocation"}


class Drawn:
    """Random words; most are usual, so that a case gets past its first refusal."""

    def __init__(self, rng: random.Random, wild: float) -> None:
        self.rng, self.wild = rng, wild

    def _one(self, usual: tuple[Any, ...], extreme: tuple[Any, ...]) -> Any:
        if self.rng.random() < 0.02 * self.wild:
            return self.rng.choice(OTHERS)
        return self.rng.choice(extreme if self.rng.random() < self.wild else usual)

    def count(self) -> Any:
        return self._one(SMALL_COUNTS, COUNTS)

    def part(self) -> Any:
        return self._one(USUAL_PARTS, PARTS)

    def size(self) -> Any:
        return self._one(USUAL_SIZES, SIZES)

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    def run(self) -> dict[str, Any]:
        """The keys of a run."""
        keys: dict[str, Any] = {"noise_multiplier": self.size()}
        if self.maybe(0.5):
            keys |= {"dataset_size": self._one((10, 100, 1000, 10_005), COUNTS), "batch_size": self.count()}
        else:
            keys["sample_rate"] = self.part()
        keys[self.rng.choice(("steps", "epochs"))] = self.count()
        if self.maybe(0.6):
            keys["sampler"] = self.rng.choice(SAMPLERS)
        for key, words in CHOICES.items():
            if key != "sampler" and self.maybe(0.12):
                keys[key] = self.rng.choice(words)
        for key, sampler in OWN.items():
            if keys.get("sampler") == sampler or self.maybe(0.02):
                keys[key] = self.count()
        if keys.get("normalization") not in (None, "none", "constant"):
            keys["dimension"] = self.count()
        if self.maybe(0.08):
            keys |= {"unit": "user", "records_per_unit": self.count()}
        return keys

    def options(self, keys: dict[str, Any]) -> Words:
        return [word for key, value in keys.items() for word in (f"--{key.replace('_', '-')}", str(value))]

    def toml(self, keys: dict[str, Any]) -> str:
        """The keys as a file; now and then a phase, a key of another kind, or something that is no TOML."""
        lines = [f"{key} = {value!r}" if isinstance(value, str) else f"{key} = {value}" for key, value in keys.items()]
        if self.maybe(0.1):
            lines += [f"[[phase]]\nsteps = {self.count()}", f"[[phase]]\nnoise_multiplier = {self.size()}"]
        if self.maybe(0.1):
            lines.append(f"[calipers]\nepsilon = {self.size()}\ndelta = {self.part()}")
        if self.maybe(0.2 * self.wild):
            lines.insert(0, self.rng.choice(HOSTILE))
        return "\n".join(lines) + "\n"

    def beside(self) -> Words:
        """What a run may have beside its keys."""
        way = self.rng.randrange(12)
        if way == 0:
            return ["--clip-count-noise", str(self.size())]
        if way == 1:
            return ["--beside", str(self.size()), "--beside", str(self.size())]
        if way == 2:
            law = self.rng.choice(("geometric", "logarithmic", "poisson", "negative-binomial"))
            shape = ["--trials-shape", str(self.size())] if law == "negative-binomial" or self.maybe(0.1) else []
            return ["--selected-mean", str(self.size()), "--trials", law, *shape]
        if way == 3:
            return ["--noise-matrix", "tree", "--min-separation", str(self.count())]
        return []

    def questions(self) -> Words:
        """What is asked of a measurement."""
        asked: Words = []
        for name, draw in (("delta", self.part), ("epsilon", self.size), ("fpr", self.part), ("delta0", self.part)):
            if self.maybe(0.35):
                asked += [f"--{name}", str(draw())]
        if self.maybe(0.2):
            asked += ["--tolerance", str(self._one((0.01, 0.1), (1e-3, 0.5, 1e-12, 0.999)))]
        return asked

    def target(self) -> Words:
        """What noise is looked for."""
        match self.rng.randrange(4):
            case 0:
                return ["--epsilon", str(self.size()), "--delta", str(self.part())]
            case 1:
                return ["--mu", str(self.size())]
            case 2:
                return ["--advantage", str(self.part())]
        return ["--tpr", str(self.part()), "--fpr", str(self.part())]

    def theorem(self) -> Words:
        """A published statement with parameters."""
        entry = THEOREMS[self.rng.choice(sorted(THEOREMS))]
        words = [entry.name]
        for taken in entry.parameters:
            whole = bool(getattr(taken.domain, "integer", False))
            value = self.count() if whole else self.rng.choice((self.part, self.size))()
            words += [f"--{taken.name.replace('_', '-')}={value}"]
        return words


HOSTILE = (
    "[" * 300,
    "a = " + "[" * 2000 + "]" * 2000,
    ".".join("a" * 2000) + " = 1",
    "noise_multiplier = 1\nnoise_multiplier = 2",
    "\x00",
    "[noise_multiplier]\nof = 1",
    "steps = 1979-05-27",
    "sampler = ['poisson']",
    "x = {y = {z = 1}}",
    "phase = 3",
    "[[phase]]\n[[phase.phase]]\nsteps = 1",
    "[guarantee]\nepsilon = 1",
    "[guarantee]\nmu = 1e300",
    "steps = 0b" + "1" * 1100,
    "noise_multiplier = inf",
)
