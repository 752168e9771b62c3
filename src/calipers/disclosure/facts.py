"""What every form is filled from: one measurement, asked once, and what somebody says about the data product."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from calipers.domains import choice
from calipers.errors import UnsupportedError
from calipers.gate.receipt_shape import assumed_words
from calipers.measure import Measurement
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.provenance import origin
from calipers.reports.answers import Answers, Questions, answer, large_deltas
from calipers.reports.readings import Claimed
from calipers.reports.records import run_record
from calipers.reports.words import describe_subject
from calipers.scope import (
    FIXED,
    FIXED_SHORT,
    NOT_DP,
    assumptions,
    in_units,
    not_promised,
    only_side,
    question_text,
    scope_text,
    shared_neighbors,
    unit_name,
    unit_text,
    unseen_text,
    verdicts,
)

_NEIGHBORS = {
    "add-remove": "Neighboring datasets differ by the presence of {unit} (unbounded differential privacy).",
    "zero-out": "In the neighboring dataset {unit} contributes nothing; the number of records is the same.",
    "substitute": "Neighboring datasets have the same size and differ in the content of {unit} (bounded differential "
    "privacy).",
}
_VIEWS = {
    "worst-case": "The adversary sees every update of the training and may choose all other records and, step by step, "
    "all gradients.",
    "isolated": "The adversary sees only the differing record's own noisy contribution: a weaker adversary than usual.",
}

_KNOWN = {
    "declared": "as declared by whoever described it, not seen in a training",
    "attached": "as its receipt says, from a record that watched the training",
    "probed": "as its receipt says, from running the implementation as a black box",
}


_UNSEEN = ("adjacency", "view", "privacy unit")
"""What a record or a probe does not see either."""
_SCOPE = {"unit": ("unit", "privacy unit"), "neighbors": ("neighbors", "adjacency"), "view": ("view",)}
"""What the numbers are about, as receipts and run files call it; all else is about the loop."""


@dataclass(frozen=True)
class Disclosure:
    """The answers of a measurement, how the run is known, and `about`, what somebody says about the data product.

    `assumed` is the list of the receipt, where there is one.
    """

    answers: Answers
    how: str = "declared"
    attained: bool = True
    conditions: tuple[str, ...] = ()
    about: Mapping[str, object] = field(default_factory=dict)
    assumed: tuple[str, ...] | None = None

    @property
    def row(self) -> Claimed:
        """The guarantee at the first delta."""
        return self.answers.epsilon[0]

    @property
    def pair(self) -> tuple[str, str]:
        """(epsilon, delta) as printed, epsilon rounded up."""
        return ceil_digits(self.row.bracket.upper), setting(self.row.at)

    @property
    def isolated(self) -> bool:
        """Whether the bound is for the weaker adversary of the isolated view."""
        return any(run.view == "isolated" for run in self.answers.runs)

    @property
    def guarantee(self) -> str:
        """What is proven, for which neighbors, run and adversary, in one sentence."""
        epsilon, delta = self.pair
        said = f"({epsilon}, {delta})-differentially private, by proof"
        if self.isolated:
            said = f"epsilon at most {epsilon} at delta = {delta}, by proof ({NOT_DP})"
        found = self.answers
        scope = scope_text(found.runs, found.executed, found.dataset_sizes)
        return f"{said}, {scope}; {FIXED_SHORT}. {not_promised(found.runs)}".rstrip()

    @property
    def delta_note(self) -> str:
        """That delta is not far below 1/N, as a sentence with a space before it; else empty."""
        runs = self.answers.runs
        return "".join(f" Note: {in_units(note, runs[0])}" for note in large_deltas(runs, [self.row.at]))

    @property
    def shown(self) -> str:
        """The epsilon that an attack shows, rounded down."""
        return floor_digits(self.row.bracket.lower) if self.attained else "0"

    @property
    def neighbors(self) -> str:
        """What neighboring datasets are, in a sentence."""
        runs = self.answers.runs
        general = dict.fromkeys(_NEIGHBORS[run.adjacency].format(unit=unit_text(run)) for run in runs)
        return " ".join((*general, f"The guarantee is for {shared_neighbors(runs)}."))

    @property
    def unit(self) -> str:
        """What is protected: one record, or one of something that has several."""
        return " and ".join(dict.fromkeys(unit_text(run) for run in self.answers.runs))

    @property
    def beyond_unit(self) -> str:
        """What the guarantee becomes for somebody with more records than the unit has."""
        if all(run.unit is None for run in self.answers.runs):
            return "If a person has several records, the guarantee for the person is weaker."
        return "For whoever has more records than that, the guarantee is weaker."

    @property
    def adversary(self) -> str:
        """Whom the guarantee holds against, in a sentence."""
        unseen = unseen_text(self.answers.runs)
        said = dict.fromkeys(_VIEWS[run.view] for run in self.answers.runs)
        return " ".join((*said, *([f"It {unseen}."] if unseen else [])))

    def attackers(self, chance: str) -> str:
        """How likely an attacker finds a given one at one false alarm in 100, of those that the numbers are about.

        Where they are not about whether somebody was in the data, that is not said of the members.
        """
        runs, name = self.answers.runs, unit_name(self.answers.runs)
        side, adjacency = only_side(runs), runs[0].adjacency
        chance = f"with probability at most {chance}"
        if side == "adding":
            found = "by the number of batches, those whose data were used can be found for certain"
            return f"at one false alarm in 100 a given {name} that is added to the data is found {chance}; {found}."
        if adjacency == "add-remove":
            return f"at one false alarm in 100 a given member is found {chance}."
        asked, (yes, _) = question_text(adjacency, name), verdicts(adjacency)
        return f"they decide {asked}; at one false alarm in 100 '{yes}' is said, where it is right, {chance}."

    @property
    def training(self) -> str:
        """What was executed, in a sentence or one for each phase."""
        return " ".join(describe_subject(self.answers).split("\n"))

    @property
    def known(self) -> str:
        """How it is known that the training was this run."""
        return _KNOWN[self.how] + (f" (assumed, not stated: {self.open})" if self.open else "")

    @property
    def open(self) -> str:
        """What nobody stated: the receipt's own list, or what the run leaves open."""
        return ", ".join(self._open.values())

    @property
    def loop_open(self) -> bool:
        """Whether some of it is about the loop: how batches are drawn and divided, and how many there are."""
        return not self._open.keys() <= {name for names in _SCOPE.values() for name in names}

    def basis_of(self, what: str) -> str:
        """What is said of the unit or the neighbors is based on."""
        assumed = not self._open.keys().isdisjoint(_SCOPE[what])
        return "assumed: nobody stated it" if assumed else f"the run, {self.known}"

    @property
    def _open(self) -> dict[str, str]:
        """What nobody stated by its name, and in words."""
        if self.assumed is not None:
            return assumed_words(self.assumed, self.answers.runs)
        found = assumptions(self.answers.runs)
        return {key: text for key, text in found.items() if self.how == "declared" or key in _UNSEEN}

    @cached_property
    def origin(self) -> dict[str, object]:
        """Version, date, command and the hash of the run; one moment for all that is written of it."""
        return origin(run_record(self.answers.runs))


def disclose(
    measurement: Measurement,
    *,
    deltas: Sequence[float] = (1e-5,),
    how: str = "declared",
    attained: bool = True,
    conditions: Sequence[str] = (),
    about: Mapping[str, object] | None = None,
    assumed: Sequence[str] | None = None,
) -> Disclosure:
    """Ask a measurement what the forms need; `UnsupportedError` where no finite epsilon is proven.

    `assumed`: what nobody stated, as a receipt names it; without one, what the runs leave open is named.
    """
    choice("how", how, tuple(_KNOWN))
    if not measurement.runs:
        raise UnsupportedError(
            "The forms describe a training by its run, fixed in advance, and this measurement is about something else: "
            "a stated guarantee, or steps chosen while training. Quote its report."
        )
    answers = answer(measurement, Questions(deltas=tuple(deltas), fprs=(0.01,)))
    found = Disclosure(
        answers,
        how,
        attained,
        tuple(dict.fromkeys((FIXED, *conditions))),
        dict(about or {}),
        None if assumed is None else tuple(assumed),
    )
    if not math.isfinite(found.row.bracket.upper):
        raise UnsupportedError(
            f"No finite epsilon is proven at delta = {setting(found.row.at)}, so there is no guarantee to disclose."
        )
    return found
