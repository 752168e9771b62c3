"""Command lines and files by the thousand, each in a process of its own: no traceback, no exit status nobody documents.

    python tests/drivers/fuzz_cli.py --seed 1 --count 5000 --jobs 4 --log fuzz.jsonl
    python tests/drivers/fuzz_cli.py --seed 1 --first 5000 --count 500 --log fuzz.jsonl    # numbers 5000 to 5499
    python tests/drivers/fuzz_cli.py --seed 1 --only 17 --log /dev/null        # one case again

A case is an ordinary command whose options, run file, receipt, certificate or checkpoint were drawn from the extremes
of their domains, and from outside of them. It is bad if it ends by a signal or with a status nobody should see (70,
a defect, is one), prints a traceback, a warning, `nan`, or anything to standard output where it refuses, or takes more
than 30 seconds of a core or a gigabyte. The last line printed is a summary as JSON; the exit status is 1 where a case
is bad. Without PyTorch or python-flint the cases that need them are counted as skipped.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from calipers.cli import main as calipers
from calipers.receipts import receipt as receipt_of
from calipers.run import Run
from calipers.samplers import SAMPLERS
from drivers import fuzz_checkpoints, fuzz_files, many
from drivers.fuzz_words import Drawn, Words

SECONDS, MEGABYTES = 30, 1000
DOCUMENTED = (0, 1, 2, 3, 4)
NO_FLINT = ("Certificates need python-flint", "The checker computes with python-flint, which is not installed")
KINDS = (
    ("measure", 24), ("calibrate", 9), ("certify", 6), ("check", 7), ("compare", 4), ("curve", 5), ("export", 4),
    ("theorem", 12), ("file", 8), ("receipt", 7), ("certificate", 7), ("checkpoint", 4), ("words", 3),
)  # fmt: skip
"""What a case is about, and of how many in a hundred."""


@functools.cache
def honest_receipt() -> dict[str, Any]:
    """The receipt that forged ones are made of."""
    return receipt_of(Run(sample_rate=0.1, steps=3, noise_multiplier=1.0), tolerance=0.1)


def warm_up() -> None:
    """Load once what forked processes find loaded."""
    honest_receipt()
    if fuzz_checkpoints.HAS_TORCH:
        fuzz_checkpoints.forged(random.Random(0), Path(tempfile.mkdtemp()))


def made(seed: int, number: int, folder: Path, kinds: tuple[tuple[str, int], ...] = KINDS) -> tuple[str, Words]:
    """Case `number`: its kind and its command line; its files are put into the folder."""
    rng = random.Random(f"{seed} {number}")
    kind = rng.choices([name for name, _ in kinds], [share for _, share in kinds])[0]
    if kind == "checkpoint" and not fuzz_checkpoints.HAS_TORCH:
        return kind, []
    drawn = Drawn(rng, rng.choice((0.05, 0.15, 0.3, 0.8)))
    return kind, _COMMANDS[kind](drawn, folder)


def _run_file(drawn: Drawn, folder: Path, name: str = "run.toml") -> str:
    path = folder / name
    path.write_text(drawn.toml(drawn.run()), encoding="utf-8")
    return str(path)


def _measure(drawn: Drawn, folder: Path) -> Words:
    shown = drawn.rng.choice(([], ["--json"], ["--explain"], ["--report", str(folder / "out.html")]))
    if drawn.maybe(0.1):
        stated = drawn.rng.choice(
            (
                ["--guarantee", f"{drawn.size()},{drawn.part()}"],
                ["--mu", str(drawn.size())],
                ["--zcdp", str(drawn.size())],
            )
        )
        return ["measure", *stated, *(["--times", str(drawn.count())] if drawn.maybe(0.3) else []), *drawn.questions()]
    return ["measure", *drawn.described(), *drawn.questions(), *shown]


def _file(drawn: Drawn, folder: Path) -> Words:
    path = _run_file(drawn, folder)
    return drawn.rng.choice(
        (["measure", "--run", path, *drawn.questions()], ["check", path], ["certify", path, "--delta", "1e-5"])
    )


def _certify(drawn: Drawn, folder: Path) -> Words:
    asked = ["--delta", str(drawn.part())] if drawn.maybe(0.5) else ["--epsilon", str(drawn.size())]
    samplers = SAMPLERS if drawn.maybe(0.1) else ("poisson", "shuffle", "balls-and-bins", "deterministic")
    return ["certify", *drawn.options(drawn.run(samplers)), *asked, "-o", str(folder / "run.cert.json")]


def _check(drawn: Drawn, folder: Path) -> Words:
    budget = ["--epsilon", str(drawn.size()), "--delta", str(drawn.part())]
    shown = drawn.rng.choice(([], ["--json"], ["--github"], ["--junit", str(folder / "out.xml")]))
    return ["check", _run_file(drawn, folder), *budget, *shown]


def _compare(drawn: Drawn, folder: Path) -> Words:
    if drawn.maybe(0.5):
        return ["compare", _run_file(drawn, folder), _run_file(drawn, folder, "other.toml"), *drawn.questions()]
    return ["compare", *drawn.options(drawn.run()), "--noise-multiplier", str(drawn.size()), *drawn.questions()]


def _curve(drawn: Drawn, _: Path) -> Words:
    asked = ["--profile", "--epsilon", str(drawn.size())] if drawn.maybe(0.5) else []
    return ["curve", *drawn.described(), *asked]


def _export(drawn: Drawn, folder: Path) -> Words:
    form = drawn.rng.choice(("short", "model-card", "checklist", "registry"))
    return ["export", _run_file(drawn, folder), "--form", form, "--delta", str(drawn.part())]


def _receipt(drawn: Drawn, folder: Path) -> Words:
    path = folder / "receipt.json"
    path.write_bytes(fuzz_files.receipt(honest_receipt(), drawn.rng))
    budget = ["--epsilon", "3", "--delta", "1e-5"]
    command = drawn.rng.choice((["verify-receipt"], ["verify-receipt", "--json"], ["check", *budget], ["export"]))
    return [*command, str(path)]


def _certificate(drawn: Drawn, folder: Path) -> Words:
    path = folder / "run.cert.json"
    path.write_bytes(fuzz_files.certificate(drawn.rng))
    return ["verify", str(path), *(["--json"] if drawn.maybe(0.3) else [])]


def _words(drawn: Drawn, folder: Path) -> Words:
    """An ordinary command with words added, taken away or misspelt."""
    words = _measure(drawn, folder)
    for _ in range(drawn.rng.choice((1, 2, 3))):
        at = drawn.rng.randrange(len(words))
        way = drawn.rng.randrange(4)
        if way == 0 and len(words) > 1:
            del words[at]
        elif way == 1:
            words.insert(
                at, drawn.rng.choice(("--", "-", "--help", "--steps", "x", "--json=1", "--delta", "--run", "measure"))
            )
        else:
            words[at] = words[at][:-1] or "--"
    return words


_COMMANDS = {
    "measure": _measure,
    "calibrate": lambda drawn, _: ["calibrate", *drawn.described(), *drawn.target()],
    "certify": _certify,
    "check": _check,
    "compare": _compare,
    "curve": _curve,
    "export": _export,
    "theorem": lambda drawn, _: ["theorem", *drawn.theorem(), *(["--json"] if drawn.maybe(0.2) else [])],
    "file": _file,
    "receipt": _receipt,
    "certificate": _certificate,
    "checkpoint": lambda drawn, folder: ["resume", str(fuzz_checkpoints.forged(drawn.rng, folder))],
    "words": _words,
}


def ended(arguments: Words) -> int:
    """The exit status of the command, run here."""
    try:
        if arguments[0] == "resume":
            return fuzz_checkpoints.resumed(Path(arguments[1]))
        calipers(arguments, prog_name="calipers")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@contextlib.contextmanager
def _into(folder: Path) -> Any:
    """Whatever is printed, by whomever, goes into two files."""
    kept, streams = [os.dup(number) for number in (1, 2)], (sys.stdout, sys.stderr)
    with (folder / "stdout").open("w", encoding="utf-8") as out, (folder / "stderr").open("w", encoding="utf-8") as err:
        for number, file in ((1, out), (2, err)):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = out, err
        try:
            yield
        finally:
            sys.stdout, sys.stderr = streams
            for number, old in zip((1, 2), kept, strict=True):
                os.dup2(old, number)
                os.close(old)


def asked(about: tuple[int, int, str]) -> many.Record:
    """What became of case `number` of a seed; `skipped` names a library that it needs and that is not installed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seed, number, only = about
        kind, arguments = made(seed, number, folder, ((only, 1),) if only else KINDS)
        if not arguments:
            return {"kind": kind, "words": [], "outcome": "skipped", "skipped": "torch", "said": ""}
        where = os.getcwd()
        os.chdir(folder)
        try:
            with _into(folder):
                status = ended(arguments)
        finally:
            os.chdir(where)
        printed = (folder / "stdout").read_text("utf-8", "replace")
        said = (folder / "stderr").read_text("utf-8", "replace")
    shown = [word if len(word) < 200 else f"{word[:200]}..." for word in arguments]
    return {
        "kind": kind,
        "words": shown,
        "skipped": "flint" if status == 2 and any(sentence in said for sentence in NO_FLINT) else "",
        "outcome": status,
        "printed": len(printed),
        "nan": " nan" in printed,
        "said": said[-1500:],
    }


def why_bad(found: many.Record) -> str:
    """What is wrong with a case; nothing is the right answer."""
    if found["seconds"] > SECONDS or found["megabytes"] > MEGABYTES:
        return f"{found['seconds']:.0f} s, {found['megabytes']:.0f} MB"
    if found["outcome"] == "skipped":
        return ""
    if found["outcome"] not in DOCUMENTED:
        return f"status {found['outcome']}"
    for word in ("Traceback", "Warning:"):
        if word in found["said"]:
            return word
    if found["outcome"] in (1, 2) and (found["printed"] or not found["said"].strip()) and found["words"][0] != "check":
        return "a refusal prints one sentence to standard error, and nothing else"
    return "nan" if found["nan"] else ""


def main() -> int:
    """Drive."""
    options = many.parser(__doc__)
    options.add_argument("--only", type=int, help="this case alone")
    options.add_argument("--kind", default="", choices=[name for name, _ in KINDS], help="cases of this kind alone")
    options.add_argument("--first", type=int, default=0, help="the number of the first case")
    options.add_argument("--jobs", type=int, default=1, help="cases at a time")
    given = options.parse_args()
    many.limit(SECONDS + 5, 3 << 30)
    warm_up()
    numbers = range(given.first, given.first + (given.count or 5000)) if given.only is None else [given.only]
    listed = many.part_of([(given.seed, number, given.kind) for number in numbers], given.part)
    return many.drive(asked, listed, given.log, why_bad, max(1, given.jobs))


if __name__ == "__main__":
    sys.exit(main())
