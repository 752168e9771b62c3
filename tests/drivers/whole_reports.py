"""Whole reports of every sampler, unit and noise: does `calipers measure` take at most two seconds of the processor?

A report is all that the command prints: epsilon, true positive rates, advantage, mu and standard accounting. Ordinary
and nasty settings of at most 1e5 steps::

    python tests/drivers/whole_reports.py --part 1/16 --log reports.1.jsonl
    python tests/drivers/whole_reports.py --only truncated-poisson --log reports.jsonl

`--seed` shuffles them, and with `--count` only so many are asked for. The time is that of the command without loading
Python and the libraries, which takes a third of a second more.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from click.testing import CliRunner

from calipers.cli import main as command
from drivers import many

MOST_SECONDS = 2.0
ADJACENCIES = ("add-remove", "zero-out", "substitute")
SIZES = (
    # records, batch, steps, noise
    (60_000, 256, 14_040, 1.1),  # the README's MNIST run
    (50_000, 500, 10_000, 0.8),
    (1_000_000, 1_024, 100_000, 0.7),
    (1_000, 10, 100_000, 5.0),
    (1_000, 100, 100, 1.0),
    (200, 100, 100_000, 30.0),
    (10_000, 100, 1, 0.5),
    (100_000_000, 4_096, 100_000, 0.5),
    (60_000, 6_000, 100_000, 0.3),
    (60_000, 600, 1_000, 50.0),
)
RECORDS = (1, 2, 20, 200)
SAMPLERS = (
    "poisson",
    "without-replacement",
    "with-replacement",
    "truncated-poisson",
    "cyclic-poisson",
    "deterministic",
)


def _sampled(sampler: str) -> Iterator[list[str]]:
    for (size, batch, steps, noise), adjacency, records in itertools.product(SIZES, ADJACENCIES, RECORDS):
        about = {"dataset-size": size, "batch-size": batch, "steps": steps, "noise-multiplier": noise}
        about |= {"sampler": sampler, "adjacency": adjacency}
        if records > 1:
            about |= {"unit": "user", "records-per-unit": records}
        if sampler == "truncated-poisson":
            for most in (batch, int(batch + 4.0 * batch**0.5)):
                yield _options(about | {"max-batch-size": most})
        elif sampler == "cyclic-poisson":
            for cycle in (2, 50):
                yield _options(about | {"cycle": cycle})
        else:
            yield _options(about)


def _allocated() -> Iterator[list[str]]:
    many = ((100_000, 1, 0.5), (100_000, 10, 1.0), (100_000, 1000, 5.0))
    few = ((391, 5, 0.55), (50, 49, 3.0), (5000, 2500, 9.0))
    for (steps, times, noise), adjacency in itertools.product((*few, *many), ADJACENCIES):
        yield _options(
            {"sampler": "random-allocation", "steps": steps, "participations": times, "noise-multiplier": noise}
            | {"adjacency": adjacency}
        )


def _correlated() -> Iterator[list[str]]:
    for steps, separation in ((1000, 100), (10_000, 1000), (100_000, 5000)):
        yield _options({"noise-matrix": "tree", "steps": steps, "noise-multiplier": 3.0, "min-separation": separation})


def _beside() -> Iterator[list[str]]:
    for (size, batch, steps, noise), adjacency in itertools.product(SIZES, ADJACENCIES):
        about = {"dataset-size": size, "batch-size": batch, "steps": steps, "noise-multiplier": noise}
        yield [*_options(about | {"adjacency": adjacency}), "--clip-count-noise", "12.8", "--additional-query", "3"]


def _selected() -> Iterator[list[str]]:
    for (size, batch, steps, noise), (trials, mean) in itertools.product(
        SIZES, (("geometric", 10), ("poisson", 30), ("logarithmic", 1000), ("negative-binomial", 5))
    ):
        about = {"dataset-size": size, "batch-size": batch, "steps": steps, "noise-multiplier": noise}
        shape = {"trials-shape": 0.5} if trials == "negative-binomial" else {}
        yield _options(about | {"selected-mean": mean, "trials": trials} | shape)


def _stated() -> Iterator[list[str]]:
    yield ["--guarantee", "8,1e-5"]
    yield ["--mu", "2"]
    yield ["--zcdp", "0.5"]


def _options(about: dict[str, object]) -> list[str]:
    return [word for name, value in about.items() for word in (f"--{name}", str(value))]


OTHERS = {
    "random-allocation": _allocated,
    "correlated": _correlated,
    "beside": _beside,
    "selection": _selected,
    "stated": _stated,
}


def reports(only: str | None = None) -> list[list[str]]:
    """The options of every report, or of those of one name."""
    found = [(name, words) for name in SAMPLERS for words in _sampled(name)]
    found += [(name, words) for name, made in OTHERS.items() for words in made()]
    return [words for name, words in found if only in (None, name)]


def asked(words: list[str]) -> many.Record:
    """What the command says: a report, or why there is none."""
    result = CliRunner().invoke(command, ["measure", *words, "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code != 0:
        return {"outcome": "refused", "said": result.output[-300:]}
    epsilon = json.loads(result.stdout)["epsilon"][0]
    return {"outcome": "answered", "epsilon": [epsilon["lower"], epsilon["upper"]]}


def why_bad(found: many.Record) -> str:
    """What is wrong, or nothing."""
    if found["outcome"] not in ("answered", "refused"):
        return f"{found['outcome']}"
    return "slow" if found["seconds"] > MOST_SECONDS else ""


def main() -> int:
    """Ask for all, and say which were slow."""
    parser = many.parser(__doc__)
    parser.add_argument("--only", choices=(*SAMPLERS, *OTHERS), help="the reports of one sampler or noise")
    options = parser.parse_args()
    listed = reports(options.only)
    if options.seed:
        random.Random(options.seed).shuffle(listed)
    asked(["--sample-rate", "0.01", "--steps", "10", "--noise-multiplier", "1"])  # loads everything once
    return many.drive(asked, many.part_of(listed[: options.count], options.part), options.log, why_bad)


if __name__ == "__main__":
    sys.exit(main())
