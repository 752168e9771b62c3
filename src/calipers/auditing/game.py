"""The game: run the target again and again on both hypotheses, keep one score for each run.

Trials are played in chunks. Chunk c of a game with seed s draws from

    SeedSequence(s, spawn_key=(c, 0))   record absent,        SeedSequence(s, spawn_key=(c, 1))   record present,

the two children of SeedSequence(s, spawn_key=(c,)). What a chunk gives therefore depends on nothing but the target, the
distinguisher, the seed and the chunk's number and size: not on the number of processes, nor on what was played before,
nor on interruptions. Memory holds the scores of all trials and the outputs of one chunk for each worker.

**Where it runs.** `jobs=1` plays in this process. More jobs play in processes of their own (joblib's "loky"), and
`joblib_backend="dask"` or "ray" on a cluster:

    client = dask.distributed.Client("scheduler:8786")
    play(target, distinguisher, trials=10**6, seed=1, joblib_backend="dask")

For Ray, `ray.init(address="auto")` first. Workers must be able to import the target's module.

**What is refused**, with the chunk and the seed that repeat it: a target that raises, returns NaN, changes the shape of
its output, takes longer than `time_limit` seconds for a chunk, kills its process, or gives other outputs when the same
chunk is played again. For the last, the first chunk is played twice: a target that takes randomness from elsewhere
cannot be repeated, and one that seeds itself with a constant plays one run over and over, which no statistics survive.
When a game is resumed, a chunk that the ledger holds is played again before anything else, also where none is missing:
what is in the ledger is believed only of a target that still gives it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np

from calipers.auditing.distinguishers import Distinguisher
from calipers.auditing.ledger import FORMAT, MODULES, Ledger, LedgerError, PlayedChunk, open_ledger
from calipers.auditing.parallel import each_played
from calipers.auditing.targets import Target, TargetError, failure, footprint, refuse_same, within
from calipers.domains import COUNT, POSITIVE
from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.user_code import user_modules

DEFAULT_CHUNK = 100
SEEDS = 2**128
# Numbers repeated on another machine may differ in their last digits; a run with other random numbers differs in all.
REPEATED = 1e-6

GameProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Scores:
    """The scores of both hypotheses, in the order of the chunks."""

    absent: FloatArray
    present: FloatArray


@dataclass(frozen=True)
class Game:
    """Everything that decides the scores. `planned` is set for a game that may end earlier than planned, or later."""

    target: Target
    distinguisher: Distinguisher
    trials: int
    seed: int
    chunk: int
    time_limit: float | None = None
    planned: int | None = None

    @property
    def chunks(self) -> int:
        """How many chunks there are; the last may be shorter."""
        return -(-self.trials // self.chunk)

    def size(self, number: int) -> int:
        """Trials for each hypothesis in a chunk."""
        return min(self.chunk, self.trials - number * self.chunk)

    def lost(self, numbers: Sequence[int], why: str) -> TargetError:
        """The error when one of these chunks was lost, with what it takes to play it again."""
        where = f"One of the chunks {', '.join(map(str, numbers))}, seed {self.seed}."
        return failure(self.target.name, why, where, min(numbers), self.seed)

    def description(self) -> dict[str, object]:
        """What the ledger's fingerprint is made of."""
        return {
            "format": FORMAT,
            "target": self.target.identity(),
            "distinguisher": self.distinguisher.identity(),
            "trials": self.trials if self.planned is None else self.planned,
            "seed": str(self.seed),
            "chunk": self.chunk,
            MODULES: user_modules(),
        } | ({} if self.planned is None else {"sequential": True})


class HowToPlay(TypedDict, total=False):
    """How a game is played. `chunk` None takes the target's own `chunk` attribute, or 100 runs at a time.

    `time_limit` is in seconds for each chunk; `progress(done, trials)` is called in this process. With `ledger`,
    finished chunks are kept in that file, and `resume=True` goes on where it ends (or starts it). Of the chunks kept
    there only the first is played again; killing the process loses at most the chunks in flight, one for each worker.
    `repeat_first=False` plays the first chunk of a new game once: for a target that has passed this check before.
    """

    jobs: int
    joblib_backend: str | None
    chunk: int | None
    ledger: Path | str | None
    resume: bool
    time_limit: float | None
    progress: GameProgress | None
    repeat_first: bool


@dataclass(frozen=True)
class Playing:
    """How a game is played; see `HowToPlay`."""

    jobs: int = 1
    joblib_backend: str | None = None
    chunk: int | None = None
    ledger: Path | str | None = None
    resume: bool = False
    time_limit: float | None = None
    progress: GameProgress | None = None
    repeat_first: bool = True


def game_of(target: Target, distinguisher: Distinguisher, trials: int, seed: int, playing: Playing) -> Game:
    """The game, with everything about it checked."""
    return Game(
        target,
        distinguisher,
        COUNT.check_int("trials", trials),
        checked_seed(seed),
        chunk_size(target, playing.chunk),
        None if playing.time_limit is None else POSITIVE.check("time_limit", playing.time_limit),
    )


def play(target: Target, distinguisher: Distinguisher, *, trials: int, seed: int, **how: Unpack[HowToPlay]) -> Scores:
    """The scores of `trials` independent runs for each hypothesis, played as `HowToPlay` says.

    Post-condition: the same target, distinguisher, trials, seed and chunk give the same scores, bit for bit on the
    same machine, whatever `jobs`, `joblib_backend`, interruptions and resumption.
    """
    playing = Playing(**how)
    game = game_of(target, distinguisher, trials, seed, playing)
    (scores,) = play_in_stages(game, (game.trials,), playing)
    return scores


def chunk_size(target: Target, chunk: int | None) -> int:
    """The chunk that was asked for, the target's own, or 100."""
    return COUNT.check_int("chunk", chunk if chunk is not None else getattr(target, "chunk", None) or DEFAULT_CHUNK)


def play_in_stages(game: Game, stages: Sequence[int], playing: Playing) -> Iterator[Scores]:
    """The scores of the first stages[0] trials, then of the first stages[1], ...; stop asking to stop playing.

    `stages` increases to game.trials; all but the last are multiples of the chunk.
    """
    if playing.resume and playing.ledger is None:
        raise InputError("resume needs a ledger to go on with; name its file.")
    kept: AbstractContextManager[Ledger | None] = nullcontext()
    if playing.ledger is not None:
        kept = open_ledger(Path(playing.ledger), game.description(), resume=playing.resume)
    with kept as book:
        yield from _played(game, stages, book, playing)


def checked_seed(seed: object) -> int:
    """The seed as an int, or `InputError`. (No `Domain`: those know doubles, and a seed may have 128 bits.)"""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < SEEDS:
        raise InputError(f"Expected seed to be an integer in [0, 2^128), got seed={seed!r}.")
    return int(seed)


def _played(game: Game, stages: Sequence[int], book: Ledger | None, playing: Playing) -> Iterator[Scores]:
    known, work = {} if book is None else _kept(game, book), partial(play_chunk, game)
    progress = playing.progress or (lambda done, total: None)
    done = sum(game.size(number) for number in known)
    progress(done, game.trials)
    if known:
        for _, found in each_played(work, game.lost, [min(known)], playing.jobs, playing.joblib_backend):
            _check_repeated(game, known[found.number], found, resumed=True)
    repeat = playing.repeat_first and not known
    for trials in stages:
        needed = range(-(-trials // game.chunk))
        missing = [number for number in needed if number not in known]
        # Chunk 0 is played twice.
        numbers = [0, *missing] if repeat and missing else missing
        repeat = repeat and not missing
        for _, found in each_played(work, game.lost, numbers, playing.jobs, playing.joblib_backend):
            if found.number in known:
                _check_repeated(game, known[found.number], found, resumed=False)
                continue
            _check_shape(game, known, found)
            known[found.number] = found
            if book is not None:
                book.record(found)
            done += game.size(found.number)
            progress(done, game.trials)
        ordered = [known[number] for number in needed]
        yield Scores(
            np.concatenate([found.absent for found in ordered]), np.concatenate([found.present for found in ordered])
        )


def play_chunk(game: Game, number: int) -> PlayedChunk:
    """One chunk, both hypotheses; a `TargetError` that names it if anything goes wrong. Runs in a worker."""
    try:
        return within(game.time_limit, lambda: _chunk(game, number))
    except Exception as error:
        cause = error.__cause__ or error
        problem = failed(game, number, error)
        problem.add_note("".join(traceback.format_exception(cause)))
        raise problem from error


def failed(game: Game, number: int, error: str | Exception) -> TargetError:
    """The error of one chunk, with what it takes to play it again."""
    where = f"Chunk {number}, seed {game.seed}, {game.size(number)} runs each."
    return failure(game.target.name, error, where, number, game.seed)


def _chunk(game: Game, number: int) -> PlayedChunk:
    count = game.size(number)
    seeds = np.random.SeedSequence(game.seed, spawn_key=(number,)).spawn(2)
    scores: list[FloatArray] = []
    shapes: list[tuple[int, ...]] = []
    for present, child in zip((False, True), seeds, strict=True):
        rng = np.random.default_rng(child)
        before = footprint(rng)
        outputs = np.asarray(game.target.outputs(present, count, rng), dtype=np.float64)
        _check_outputs(outputs, count, present, drew=footprint(rng) != before)
        shapes.append(outputs.shape[1:])
        scores.append(_scored(game.distinguisher, outputs))
    if shapes[0] != shapes[1]:
        raise TargetError(f"outputs have shape {shapes[0]} without the record and {shapes[1]} with it; keep one shape")
    return PlayedChunk(number, scores[0], scores[1], shapes[0])


def _check_outputs(outputs: FloatArray, count: int, present: bool, drew: bool) -> None:
    side = "present" if present else "absent"
    if outputs.ndim not in (2, 3) or outputs.shape[0] != count or outputs.size == 0:
        raise TargetError(
            f"asked for {count} runs with the record {side} and got an array of shape {outputs.shape}; return "
            f"({count}, features) or ({count}, rounds, features)"
        )
    unusable = np.isnan(outputs).reshape(count, -1).any(axis=1)
    if unusable.any():
        raise TargetError(f"returned NaN in run {int(unusable.argmax())} with the record {side}")
    refuse_same(outputs, drew, f"gave the same output in all {count} runs with the record {side}")


def _scored(distinguisher: Distinguisher, outputs: FloatArray) -> FloatArray:
    found = np.asarray(distinguisher.scores(outputs), dtype=np.float64)
    if found.shape != (len(outputs),):
        raise TargetError(
            f"the distinguisher ({distinguisher.name}) gave an array of shape {found.shape} for {len(outputs)} runs; "
            "one score for each run is needed"
        )
    if np.isnan(found).any():
        raise TargetError(f"the distinguisher ({distinguisher.name}) gave NaN for run {int(np.isnan(found).argmax())}")
    return found


def _kept(game: Game, book: Ledger) -> dict[int, PlayedChunk]:
    """What the ledger holds, which must be chunks of this game."""
    known = book.chunks()
    if game.planned is not None:  # an earlier visit may have gone on for longer
        known = {number: found for number, found in known.items() if number < game.chunks}
    for number, found in known.items():
        if not 0 <= number < game.chunks or not len(found.absent) == len(found.present) == game.size(number):
            raise LedgerError(f"The ledger {book.path} is damaged: it holds a chunk {number} that this game lacks.")
    return known


def _check_shape(game: Game, known: dict[int, PlayedChunk], found: PlayedChunk) -> None:
    other = next(iter(known.values()), found)
    if found.shape != other.shape:
        said = f"outputs have shape {other.shape} in chunk {other.number} and {found.shape} in chunk {found.number}"
        raise failed(game, found.number, f"{said}; keep one shape")


def _check_repeated(game: Game, first: PlayedChunk, second: PlayedChunk, *, resumed: bool) -> None:
    if all(_same(a, b) for a, b in ((first.absent, second.absent), (first.present, second.present))):
        return
    if resumed:
        said = "does not repeat what the ledger holds; the target, or a library it uses, has changed since"
    else:
        said = "gave other outputs when the same chunk was played again; take all randomness from rng"
    raise failed(game, first.number, said)


def _same(first: FloatArray, second: FloatArray) -> bool:
    scale = float(np.abs(first[np.isfinite(first)]).max(initial=0.0))
    return np.allclose(first, second, rtol=0.0, atol=REPEATED * scale)
