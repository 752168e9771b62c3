"""What a stated guarantee implies, in sentences.

Nothing is proven or attacked here of the mechanism behind the statement. The upper value follows from the statement;
the lower one is attained by some mechanism for which it holds, so nothing smaller follows.
"""

from __future__ import annotations

import math

from calipers._version import __version__
from calipers.guarantee import NEIGHBORS
from calipers.numerics.decimals import ceil_digits, end_digits
from calipers.reports.answers import Answers
from calipers.reports.readings import Reading

ABOUT = "Of the mechanism behind the statement, which may leak less, nothing is proven or attacked."


def is_guarantee(answers: Answers) -> bool:
    """Whether a guarantee is all that was given."""
    return answers.stated is not None and answers.stated.is_guarantee


def stated_number(answers: Answers, reading: Reading) -> float | None:
    """The number that is stated of this quantity, which is written as it was stated."""
    return None if answers.stated is None else answers.stated.number(reading.quantity)


def stated_text(answers: Answers) -> str:
    """What is stated, within a sentence."""
    assert answers.stated is not None
    return answers.stated.words[0].lower() + answers.stated.words[1:]


def implied(answers: Answers, reading: Reading) -> str:
    """What follows of one quantity, and what does not."""
    lower, upper = end_digits(reading.bracket.lower, reading.bracket.upper, stated_number(answers, reading))
    if math.isinf(reading.bracket.lower):
        return f"No finite {reading.name} follows from it, since some mechanism that is as stated has none."
    attained = "since some mechanism that is as stated attains that much"
    if math.isinf(reading.bracket.upper):
        return f"No finite {reading.name} is proven to follow from it, and none below {lower} follows, {attained}."
    return f"It implies that {reading.name} is at most {upper}; nothing below {lower} follows from it, {attained}."


def implied_verdict(answers: Answers) -> str:
    """What is stated, and what it implies of the first quantity that was asked for."""
    return f"Stated: {stated_text(answers)}. {implied(answers, answers.leading)}"


def implied_line(answers: Answers) -> str:
    """The same as one line to report, with its neighbors."""
    assert answers.stated is not None
    mark = " (assumed)" if "adjacency" in answers.stated.assumed else ""
    neighbors = f"for {NEIGHBORS[answers.stated.adjacency]} one record{mark}"
    return f"{stated_text(answers)}, {neighbors}. {implied(answers, answers.leading)} Read with Calipers {__version__}."


def implied_paragraph(answers: Answers, regret: float) -> list[str]:
    """What is stated; epsilon, and mu with the regret of it as it is printed, where these are not what is stated."""
    assert answers.stated is not None
    sentences = [f"Stated: {answers.stated.sentence}", *(implied(answers, row) for row in answers.epsilon)]
    mu = next(reading for reading in answers.readings if reading.quantity == "mu")
    if stated_number(answers, mu) is None:
        sentences.append(implied(answers, mu))
    if math.isfinite(mu.bracket.upper):
        sentences.append(f"The regret of reporting mu alone is at most {ceil_digits(regret)} (Gomez et al., 2025).")
    return [*sentences, ABOUT]
