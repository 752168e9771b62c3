"""What a reader takes a sentence for is true: sentences that could be read as something false, or do not say enough."""

from __future__ import annotations

import math

import pytest
from scipy.special import ndtr, ndtri

from calipers.gate import Budget, check
from calipers.measure import measure
from calipers.measure.measurement import Measurement
from calipers.numerics.decimals import ceil_digits
from calipers.reports.answers import Questions, answer
from calipers.reports.figures import profile_figure, rate_figures
from calipers.reports.paragraph import paragraph, report_this
from calipers.reports.words import describe
from calipers.run import Run
from calipers.scope import scope_text, sums_text

FLOORED = Run(
    dataset_size=1_000,
    sample_rate=0.1,
    steps=10,
    noise_multiplier=2.0,
    normalization="floor",
    dimension=10,
    adjacency="add-remove",
)
POISSON = Run(dataset_size=1_000, batch_size=100, epochs=2, noise_multiplier=2.0)


def said(found: Measurement) -> tuple[str, str]:
    """The sentence to report and the paragraph to paste."""
    answers = answer(found, Questions())
    return report_this(answers), paragraph(answers, 0.05)


def test_a_shuffling_loader_is_not_taken_for_what_opacus_does_by_default() -> None:
    """Opacus draws Poisson batches whatever the loader says: both samplers' notes say when it does shuffle."""
    poisson = measure(POISSON)
    shuffled = measure(POISSON.replace(sampler="shuffle", last_batch="drop", dataset_size=1_005))
    assert "shuffled (in Opacus only with poisson_sampling=False), say sampler = 'shuffle'" in " ".join(poisson.notes)
    assert "Opacus shuffles only with poisson_sampling=False" in " ".join(shuffled.notes)


@pytest.mark.slow
def test_the_divisor_is_said_with_the_sizes_that_it_is_of() -> None:
    """floor(N q) = 100 of 1,000 records moves, and 100 of 1,005 does not: the sentences differ, and name N."""
    one, other = (sums_text(FLOORED.replace(dataset_size=size)) for size in (1_000, 1_005))
    assert one == "noisy sums divided by floor(N q), which is 99, 100 and 100 for N = 999, 1,000 and 1,001"
    assert other == "noisy sums divided by floor(N q), which is 100 for N = 1,005 and one record more or fewer"
    stays = FLOORED.replace(dataset_size=1_005)
    sentence, pasted = said(measure(stays, tolerance=0.05))
    assert f"{other} (for this N; other dataset sizes may leak more), against" in sentence
    assert "which is 100 for N = 1,005 and one record more or fewer; neighbors" in pasted
    assert "The divisor depends on the data: the guarantee is for this N and its neighbors only." in pasted
    assert "(for this N; other dataset sizes may leak more)" in check(stays, Budget(epsilon=1.0, delta=1e-5)).sentence


@pytest.mark.parametrize("normalization", ["expected", "realized"])
def test_other_divisors_that_move_name_the_size(normalization: str) -> None:
    """N q and the realized batch size tell neighbors apart at every size."""
    run = FLOORED.replace(normalization=normalization)
    assert sums_text(run).endswith(", with N = 1,000 and one record more or fewer")
    assert (
        "with N = 1,000 and one record more or fewer (for this N; other dataset sizes may leak more), against"
        in scope_text([run])
    )


@pytest.mark.slow
def test_a_range_of_sizes_is_what_the_sentence_is_about() -> None:
    """And not the one size that the run was described with."""
    sentence, pasted = said(measure(FLOORED, tolerance=0.05, dataset_sizes=(990, 1_010)))
    assert "divided by floor(N q), for every N from 990 to 1,010, against" in sentence
    assert "the guarantee is for every N from 990 to 1,010." in pasted
    assert "for this N" not in sentence + pasted


def test_where_the_size_is_public_no_size_is_named() -> None:
    """Zeroing out or replacing a record leaves N as it is, and a constant does anyhow."""
    for run in (FLOORED.replace(adjacency="zero-out"), FLOORED.replace(normalization="constant"), POISSON):
        assert "for this N" not in scope_text([run])
        assert "for N =" not in describe(run)


def test_a_rate_that_moves_names_the_size() -> None:
    """The rate B/N of each dataset's own N: 1 of 10 says nothing of N."""
    run = POISSON.replace(derived_rate="moving", adjacency="add-remove", epochs=None, steps=20)
    assert "0.1, computed from the dataset's own size, N = 1,000)" in scope_text([run])


def test_what_mu_alone_promises_is_rounded_in_the_direction_in_which_it_bounds() -> None:
    """With mu as it is printed: true positive rates and deltas up, false negative rates down."""
    found = measure(POISSON, tolerance=0.05)
    answers = answer(found, Questions())
    printed, delta0 = float(ceil_digits(answers.mu.upper)), answers.delta0
    even, rare = rate_figures(found, answers)

    def power(rate: float) -> float:
        return delta0 + (1.0 - delta0) * float(ndtr(ndtri(min(rate / (1.0 - delta0), 1.0)) + printed))

    def delta(epsilon: float) -> float:
        away, near = (float(ndtr(-epsilon / printed + side * printed / 2)) for side in (-1.0, 1.0))
        return delta0 + (1.0 - delta0) * (near - math.exp(epsilon) * away)

    profile = profile_figure(found, answers)
    assert profile is not None
    for figure, largest in ((rare, power), (profile, delta)):
        for place, *_, fit in figure.table.rows:
            assert fit.direction == "at most"
            assert float(fit.text) >= largest(place.exact) - 1e-15
    for place, *_, fit in even.table.rows:
        assert fit.direction == "at least"
        assert float(fit.text) <= 1.0 - power(place.exact) + 1e-15
