"""What `benchmarks.protocol` trains: the jobs of its four parts, those chosen by hand, one training, and its bracket.

Tables 1 and 3 of the paper are CIFAR-10 with ResNet-18 and AG News with Transformer-Tiny; MNIST and Fashion-MNIST with
a small CNN are ours. CIFAR-10's tables have batch sizes 128 to 4,096; all have 1, 10 and 25 epochs. Jobs are ordered so
that short trainings come first: whatever the time allows is a table with whole rows.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

DELTA = 1e-5
EPOCHS = (1, 10, 25)
HELD_OUT = 5_000
SEARCH_SEED = 100
SEARCH_BATCH = 512

MODELS = {"mnist": "cnn", "fashion-mnist": "cnn", "ag-news": "transformer-tiny", "cifar10": "resnet18"}
RATES = {
    "mnist": (0.05, 0.1, 0.2, 0.5),
    "fashion-mnist": (0.05, 0.1, 0.2, 0.5),
    "ag-news": (0.0002, 0.0005, 0.001),
    "cifar10": (0.001, 0.003, 0.01, 0.03, 0.1),
}
NORMS = {
    "mnist": (0.3, 1.0, 3.0),
    "fashion-mnist": (0.3, 1.0, 3.0),
    "ag-news": (0.3, 1.0, 3.0),
    "cifar10": (1.0, 5.0, 20.0),
}
BATCHES = {
    "mnist": (512, 128, 2048),
    "fashion-mnist": (512, 128, 2048),
    "ag-news": (512, 256, 1024, 128),
    "cifar10": (512, 1024, 2048, 4096, 256, 128),
}
# Where an epoch takes seconds, the longest searches are left out, and a shorter one's choice serves; longer searches
# than the first try that one's choice and its neighbors.
SEARCHED = {"mnist": EPOCHS, "fashion-mnist": EPOCHS, "ag-news": (1,), "cifar10": (1, 10)}
NEIGHBORS = ("cifar10",)
FRONTIER = {"mnist": (0.6, 0.8, 1.0, 1.5, 2.5, 5.0), "fashion-mnist": (0.6, 0.8, 1.0, 1.5, 2.5, 5.0)}
FRONTIER_EPOCHS, FRONTIER_BATCH = 10, 512
SEARCHES = ("rate", "norm")
REGIMES = ("clean", "clip", "dp")
# What can be chosen by hand, several values each: the options of the command, and what is taken where none is given.
SEVERAL: dict[str, tuple[Any, ...]] = {
    "epochs": (1,),
    "batch_size": (512,),
    "sampler": ("shuffle", "poisson"),
    "regime": ("clean", "dp"),
    "learning_rate": (0.1,),
    "max_grad_norm": (1.0,),
    "noise_factor": (1.0,),
    "seed": (0,),
}

Chosen = Mapping[tuple[str, int], Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training: "clean" (no noise, no clipping), "clip" (no noise) or "dp".

    A `noise_multiplier` of -f stands for f times the paper's 1/sqrt(2 ln M) until the dataset's size is known.
    """

    part: str
    dataset: str
    model: str
    records: int
    sampler: str
    regime: str
    batch_size: int
    epochs: int
    noise_multiplier: float
    learning_rate: float
    max_grad_norm: float | None
    optimizer: str
    seed: int

    def asdict(self) -> dict[str, Any]:
        """The settings."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Job:
        """The job of a line."""
        return cls(**{field.name: row[field.name] for field in dataclasses.fields(cls)})

    @property
    def key(self) -> str:
        """A name of the training."""
        return hashlib.sha256(json.dumps(self.asdict(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def run_key(self) -> str:
        """A name of everything its privacy depends on."""
        return f"{self.sampler} {self.records} {self.batch_size} {self.epochs} {self.noise_multiplier!r}"

    @property
    def measured(self) -> bool:
        """Whether the line has a bracket: it has noise, and is no search."""
        return self.noise_multiplier > 0 and self.part not in SEARCHES

    @property
    def speed_key(self) -> str:
        """Trainings that take the same time per unit of cost."""
        return f"{self.model} {self.regime} {self.batch_size}"

    @property
    def weight(self) -> int:
        """Of how many trainings of the small network it takes the place: gradients of large ones fill the memory."""
        return 1 if self.model == "cnn" else 2

    @property
    def cost(self) -> float:
        """Gradients of records."""
        return float(self.epochs * (self.records // self.batch_size) * self.batch_size)

    def sampler_object(self) -> Any:
        """The sampler that draws, of equal cost for all names."""
        from calipers.training.plan import sampler_of

        rounds = self.records // self.batch_size
        length = {"steps": rounds * self.epochs} if self.sampler == "poisson" else {"epochs": self.epochs}
        return sampler_of(self.sampler, dataset_size=self.records, batch_size=self.batch_size, **length)


@cache
def loaded(name: str, folder: str) -> Any:
    """The dataset, once for each process."""
    from calipers.training import load_dataset

    return load_dataset(name, folder, **({"vocabulary": "frequent"} if name == "ag-news" else {}))


@cache
def sizes(folder: str) -> dict[str, int]:
    """The number of training records of every dataset whose files are there."""
    from calipers.errors import InputError

    found = {}
    for name in MODELS:
        try:
            found[name] = loaded(name, folder).size
        except InputError:
            continue
    return found


def available(folder: str, wanted: list[str] | None) -> dict[str, int]:
    """The datasets that are there and wanted, with their sizes."""
    found = {name: size for name, size in sizes(folder).items() if not wanted or name in wanted}
    if not found:
        raise SystemExit(f"{folder} holds none of {', '.join(wanted or MODELS)}.")
    return found


def _job(part: str, dataset: str, records: int, seed: int, **settings: Any) -> Job:
    from calipers.theorems.separation import noise_threshold

    optimizer = "adam" if dataset == "ag-news" else "sgd"
    if settings["noise_multiplier"] < 0:
        settings["noise_multiplier"] *= -noise_threshold(records // settings["batch_size"])
    fixed = {"model": MODELS[dataset], "optimizer": optimizer, "records": records, "seed": seed}
    return Job(part=part, dataset=dataset, **fixed, **settings)


def searched(part: str, datasets: Mapping[str, int], chosen: Chosen, epochs: int) -> Iterator[Job]:
    """Learning rates without noise, then clipping norms with it; on all records but those that judge."""
    for name, size in datasets.items():
        if epochs not in SEARCHED[name]:
            continue
        place = {"batch_size": SEARCH_BATCH, "epochs": epochs, "sampler": "shuffle"}
        if part == "rate":
            for rate in _tried(part, RATES[name], name, epochs, chosen):
                plain = {"regime": "clean", "noise_multiplier": 0.0, "max_grad_norm": None, "learning_rate": rate}
                yield _job(part, name, size - HELD_OUT, SEARCH_SEED, **place, **plain)
        else:
            best = settings_for(name, epochs, chosen)["rate"]
            for norm in _tried(part, NORMS[name], name, epochs, chosen):
                # A step is at most rate times norm long: both are kept in proportion by trying the norm alone.
                noisy = {"regime": "dp", "noise_multiplier": -1.0, "max_grad_norm": norm, "learning_rate": best}
                yield _job(part, name, size - HELD_OUT, SEARCH_SEED, **place, **noisy)


def _tried(part: str, grid: tuple[float, ...], name: str, epochs: int, chosen: Chosen) -> tuple[float, ...]:
    """The grid, or what is next to the choice of fewer epochs."""
    before = {budget: chosen[name, budget][part] for budget in SEARCHED[name] if part in chosen.get((name, budget), {})}
    shorter = [budget for budget in before if budget < epochs]
    if name not in NEIGHBORS or not shorter:
        return grid
    values = sorted({*grid, before[max(shorter)]})
    place = values.index(before[max(shorter)])
    return tuple(values[max(0, place - 1) : place + 2])


def settings_for(name: str, epochs: int, chosen: Chosen) -> dict[str, float]:
    """The choice for so many epochs, or for the longest that was searched; the middle where nothing was."""
    middle = {"rate": RATES[name][len(RATES[name]) // 2], "norm": NORMS[name][len(NORMS[name]) // 2]}
    known = [budget for budget in SEARCHED[name] if (name, budget) in chosen and budget <= epochs]
    return middle | (dict(chosen[name, max(known)]) if known else {})


def table_jobs(datasets: Mapping[str, int], chosen: Chosen, epochs: int, seed: int) -> Iterator[Job]:
    """The published tables' cells: with and without noise, both samplers."""
    for name, size in datasets.items():
        best = settings_for(name, epochs, chosen)
        for sampler in ("shuffle", "poisson"):
            for batch in BATCHES[name]:
                place = {"batch_size": batch, "epochs": epochs, "sampler": sampler, "learning_rate": best["rate"]}
                clean = {"regime": "clean", "noise_multiplier": 0.0, "max_grad_norm": None}
                noisy = {"regime": "dp", "noise_multiplier": -1.0, "max_grad_norm": best["norm"]}
                for regime in (clean, noisy):
                    yield _job("table", name, size, seed, **place, **regime)


def frontier_jobs(datasets: Mapping[str, int], chosen: Chosen, seed: int) -> Iterator[Job]:
    """Accuracy against certified epsilon: three samplers, the same noise, batch size and steps."""
    for name in FRONTIER:
        if name not in datasets:
            continue
        best = settings_for(name, FRONTIER_EPOCHS, chosen)
        for noise in FRONTIER[name]:
            for sampler in ("shuffle", "poisson", "balls-and-bins"):
                place = {"batch_size": FRONTIER_BATCH, "epochs": FRONTIER_EPOCHS, "sampler": sampler, "regime": "dp"}
                rate = {"learning_rate": best["rate"], "max_grad_norm": best["norm"], "noise_multiplier": noise}
                yield _job("frontier", name, datasets[name], seed, **place, **rate)


def chosen_jobs(datasets: Mapping[str, int], chosen: Mapping[str, Any]) -> Iterator[Job]:
    """Every combination of the values of `SEVERAL`, on the first `records` of each dataset."""
    from calipers.domains import Domain

    for (name, size), values in itertools.product(datasets.items(), itertools.product(*(chosen[n] for n in SEVERAL))):
        picked = dict(zip(SEVERAL, values, strict=True))
        # What a regime does not use must not make another line.
        unused = {"clean": ("max_grad_norm", "noise_factor"), "clip": ("noise_factor",), "dp": ()}[picked["regime"]]
        if any(picked[key] != chosen[key][0] for key in unused):
            continue
        records = chosen["records"] or size
        Domain(1, records // 2, integer=True).check_int("batch_size", picked["batch_size"], "Two batches at least.")
        factor, seed = picked.pop("noise_factor"), picked.pop("seed")
        picked["noise_multiplier"] = -factor if picked["regime"] == "dp" else 0.0
        picked["max_grad_norm"] = None if picked["regime"] == "clean" else picked["max_grad_norm"]
        yield _job("chosen", name, records, seed, **picked)


def train_job(job: Job, folder: str, device: str, end: float) -> dict[str, Any] | None:
    """Train and evaluate: a line without its bracket, or None if time is up before the end."""
    import torch

    from calipers.training import Plan, accuracy, build_model, train
    from calipers.training.torch_library import chosen_device

    torch.set_num_threads(1)
    whole = loaded(job.dataset, folder)
    data = whole if job.records == whole.size else whole.first(job.records)
    plan = Plan(
        sampler=job.sampler_object(),
        noise_multiplier=job.noise_multiplier,
        max_grad_norm=job.max_grad_norm,
        learning_rate=job.learning_rate,
        optimizer=job.optimizer,
        momentum=0.9,
        schedule="cosine",
        seed=job.seed,
    )
    model = build_model(job.model, data, seed=job.seed)

    def stop_in_time(done: int, steps: int) -> None:
        if time.time() > end:
            raise TimeoutError

    try:
        trained = train(
            plan, model, data.records, data.labels, prepare=data.prepare, device=device, progress=stop_in_time
        )
    except TimeoutError:
        return None
    judged = (data.test_records, data.test_labels)
    if job.part in SEARCHES:
        judged = (whole.records[-HELD_OUT:], whole.labels[-HELD_OUT:])
    found = accuracy(model, *judged, prepare=data.prepare, device=chosen_device(device))
    return {
        "key": job.key,
        **job.asdict(),
        "steps": plan.steps,
        "dimension": trained.dimension,
        "accuracy": found,
        "judged_on": "held-out training records" if job.part in SEARCHES else "test records",
        "seconds": trained.seconds,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": str(torch.__version__),
        "date": time.strftime("%Y-%m-%d"),
    }


def bracket(job: Job) -> dict[str, Any]:
    """The brackets of epsilon at delta = 1e-5 and of the separation, or why there are none."""
    from calipers.errors import CalipersError
    from calipers.measure import measure
    from calipers.training import run_of

    run = run_of(job.sampler_object(), noise_multiplier=job.noise_multiplier, normalization="constant")
    try:
        measurement = measure(run, tolerance=1e-2)
        found, apart = measurement.epsilon(delta=DELTA), measurement.separation()
    except CalipersError as error:
        return {"delta": DELTA, "refused": " ".join(str(error).split())}
    return {"delta": DELTA, "lower": found.lower, "upper": found.upper, "separation": [apart.lower, apart.upper]}
