"""What a fuzzed command line says: options, run files and values, ordinary ones and the extremes of their domains."""

from __future__ import annotations

import random
from typing import Any

from calipers.run import CHOICES
from calipers.samplers import SAMPLERS
from calipers.theorems.registry import THEOREMS

Words = list[str]
COUNTS = (1, 2, 3, 10, 97, 1000, 60_000, 10**6, 10**9, 10**12, 2**53, 10**15, 0, -1, 10**300)
SMALL_COUNTS = (1, 2, 3, 5, 10, 30, 100)
PARTS = (1e-300, 5e-324, 1e-100, 1e-16, 1e-9, 1e-5, 0.01, 0.1, 0.5, 0.999999, 1 - 2**-53, 1.0, 0.0, 1e-308)
USUAL_PARTS = (1e-5, 1e-3, 0.01, 0.1, 0.3, 0.5)
SIZES = (1e-300, 5e-324, 1e-9, 1e-3, 0.02, 0.1, 0.5, 1.0, 3.0, 100.0, 709.9, 1e5, 1e10, 1e15, 1e300, 1.7e308, 0.0, -1.0)
USUAL_SIZES = (0.3, 0.5, 0.7, 1.0, 2.0, 5.0)
NOISES = (0.02, 0.05, 0.1, 0.2, 30.0, 100.0, 1e3, 1e5, 1e7, 1e-300, 1e300)
DATASETS = (1, 2, 3, 10**5, 10**7, 10**9, 10**12, 2**53, 10**18)
NEEDS_SIZE = ("shuffle", "without-replacement", "with-replacement", "truncated-poisson")
OTHERS = ("nan", "inf", "-inf", "", "1e", "0x10", "1,5", "٣", "1e-400", "true", "9" * 400, "'", "[[", "\ud7ff", "-")
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

    def noise(self) -> Any:
        return self._one(USUAL_SIZES, NOISES)

    def run(self, samplers: tuple[str, ...] = SAMPLERS) -> dict[str, Any]:
        """The keys of a run: what its sampler takes, and now and then what it does not."""
        keys: dict[str, Any] = {"noise_multiplier": self.noise(), "sampler": self.rng.choice(samplers)}
        sampler = keys["sampler"]
        if sampler == "random-allocation":
            steps = self._one((10, 30, 100), COUNTS[:10])
            keys |= {"steps": steps, "participations": self._one((1, 2, 5), COUNTS[:6])}
            self._refine(keys)
            return keys
        if sampler in NEEDS_SIZE or self.maybe(0.5):
            size = self._one((10, 97, 1000, 10_005), DATASETS)
            most = size if isinstance(size, int) else 10
            keys |= {"dataset_size": size, "batch_size": max(1, int(most * self.rng.choice((1e-9, 1e-3, 0.1, 0.5, 1))))}
        else:
            parts = 1 / self.rng.choice(SMALL_COUNTS if self.maybe(1 - self.wild) else COUNTS[:10])
            keys["sample_rate"] = parts if self.maybe(0.7) else self.part()
        length = "steps" if self.maybe(0.3) else "epochs"
        keys[length] = self._one(SMALL_COUNTS, COUNTS[:12])
        for key, owner in OWN.items():
            if sampler == owner or self.maybe(0.01):
                keys[key] = self._one((1, 2, 5, 10), COUNTS[:8])
        self._refine(keys)
        return keys

    def _refine(self, keys: dict[str, Any]) -> None:
        """Adjacency, view, divisor, unit and the like."""
        for key, chance in (("adjacency", 0.4), ("view", 0.1), ("normalization", 0.1), ("derived_rate", 0.05)):
            if self.maybe(chance):
                keys[key] = self.rng.choice(CHOICES[key])
        for key, owners in {
            "last_batch": ("shuffle", "deterministic"),
            "reshuffle": ("shuffle", "balls-and-bins"),
        }.items():
            if self.maybe(0.3 if keys["sampler"] in owners else 0.01):
                keys[key] = self.rng.choice(CHOICES[key])
        if keys.get("normalization") not in (None, "none", "constant"):
            keys["dimension"] = self._one(SMALL_COUNTS, COUNTS[:11])
        if self.maybe(0.06):
            keys |= {"unit": "user", "records_per_unit": self._one((1, 2, 5), COUNTS[:8])}

    def options(self, keys: dict[str, Any]) -> Words:
        return [word for key, value in keys.items() for word in (f"--{key.replace('_', '-')}", str(value))]

    def toml(self, keys: dict[str, Any]) -> str:
        """The keys as a file; now and then a phase, a key of another kind, or something that is no TOML."""
        lines = [f"{key} = {value!r}" if isinstance(value, str) else f"{key} = {value}" for key, value in keys.items()]
        if self.maybe(0.1):
            lines += [f"[[phase]]\nsteps = {self.count()}", f"[[phase]]\nnoise_multiplier = {self.size()}"]
        if self.maybe(0.3):
            lines.append(f"[calipers]\nepsilon = {self.size()}\ndelta = {self.part()}")
        if self.maybe(0.2 * self.wild):
            lines.insert(0, self.rng.choice(HOSTILE))
        return "\n".join(lines) + "\n"

    def described(self) -> Words:
        """A run by options, with what it may have beside its keys; or one with correlated noise."""
        way = self.rng.randrange(12)
        if way == 3:
            keys = {"noise_multiplier": self.noise(), "steps": self._one(SMALL_COUNTS, COUNTS[:10])}
            return [*self.options(keys), "--noise-matrix", "tree", "--min-separation", str(self.count())]
        return [*self.options(self.run()), *self._beside(way)]

    def _beside(self, way: int) -> Words:
        if way == 0:
            return ["--clip-count-noise", str(self.size())]
        if way == 1:
            return ["--additional-query", str(self.size()), "--additional-query", str(self.size())]
        if way == 2:
            law = self.rng.choice(("geometric", "logarithmic", "poisson", "negative-binomial"))
            shape = ["--trials-shape", str(self.size())] if law == "negative-binomial" or self.maybe(0.1) else []
            return ["--selected-mean", str(self.size()), "--trials", law, *shape]
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
