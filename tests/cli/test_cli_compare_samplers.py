"""`calipers compare --samplers`: one run under all samplers, as one table and one picture."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from calipers.bracket import Side
from calipers.measure import measure
from calipers.numerics.normal import gaussian_delta
from calipers.reports.answers import Questions, answer
from calipers.reports.comparison import Judged, Order, order_of, profiles, shuffles
from calipers.reports.plots import draw_profiles
from calipers.run import SAMPLERS, Run
from calipers.samplers import scheme_named

RUN = Run(dataset_size=8, batch_size=2, epochs=1, noise_multiplier=2.0)


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("dataset_size = 8\nbatch_size = 2\nepochs = 1\nnoise_multiplier = 2.0\n")
    return path


def test_the_same_run_under_all_samplers(calipers, run_file):
    """One object per sampler, in the order of the options, and a verdict on each of the pairs."""
    record = json.loads(calipers("compare", run_file, "--samplers", "--tolerance", 0.1, "--json").stdout)
    assert [run["name"] for run in record["runs"]] == list(SAMPLERS)
    assert [run["run"]["sampler"] for run in record["runs"]] == list(SAMPLERS)
    assert len(record["verdicts"]) == len(SAMPLERS) * (len(SAMPLERS) - 1) // 2


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_one_picture_beside_the_table(calipers, run_file, tmp_path, ending, magic):
    """The table goes to standard output, the picture to the file."""
    target = tmp_path / f"samplers.{ending}"
    result = calipers("compare", run_file, "--samplers", "--tolerance", 0.1, "--output", target)
    assert result.exit_code == 0
    assert "balls-and-bins" in result.stdout
    assert target.read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--samplers",), "A run needs --noise-multiplier"),
        (("--sample-rate", 0.1, "--steps", 2, "--noise-multiplier", 1), "at least two runs, got 1"),
        ((), "at least two runs, got 0"),
        (("--samplers", "--sampler", "poisson"), "--samplers and --sampler contradict"),
        (("a.toml", "b.toml", "--output", "curves.pdf"), "ends in .png or .svg"),
    ],
)
def test_what_cannot_be_compared_is_refused(refused, measured_with, arguments, message):
    assert message in refused("compare", *arguments)
    assert measured_with == []


def test_a_sampler_that_cannot_make_the_run_is_left_out_loudly(calipers, tmp_path):
    """Shuffling needs a whole number of batches per epoch; coins do not."""
    path = tmp_path / "run.toml"
    path.write_text("dataset_size = 10\nsample_rate = 0.3\nsteps = 3\nnoise_multiplier = 2.0\n")
    result = calipers("compare", path, "--samplers", "--tolerance", 0.1, "--json")
    assert "shuffle: left out" in result.stderr
    assert "1/M" in result.stderr
    named = [run["name"] for run in json.loads(result.stdout)["runs"]]
    assert "shuffle" not in named
    assert {"poisson", "cyclic-poisson"} <= set(named)


def test_shuffled_batches_are_never_less_private_than_fixed_ones():
    """Known by theorem where curves drawn with chords cannot show it; other changes are not covered by it."""
    shuffled, fixed = RUN.replace(sampler="shuffle"), RUN.replace(sampler="deterministic")
    assert shuffles([shuffled], [fixed])
    assert shuffles([fixed, shuffled], [fixed, fixed])
    assert not shuffles([fixed], [shuffled])
    assert not shuffles([fixed], [fixed])
    assert not shuffles([shuffled.replace(noise_multiplier=1.0)], [fixed])
    assert not shuffles([RUN], [fixed])
    assert not shuffles([shuffled, shuffled], [fixed])
    one, other = (Judged(answer(found, Questions()), found.curve) for found in map(measure, (shuffled, fixed)))
    assert order_of(one, other) is Order.FIRST
    assert order_of(other, one) is Order.SECOND


def test_profiles_are_bounds_on_one_grid():
    """The bounds of fixed batches enclose the closed form; those of shuffled ones stay below."""
    measurements = [measure(RUN.replace(sampler=name)) for name in ("deterministic", "shuffle")]
    fixed, shuffled = profiles(["fixed", "shuffled"], measurements)
    exact = gaussian_delta(0.5, np.array(fixed.epsilon))
    assert np.all(np.array(fixed.lower) <= exact)
    assert np.all(exact <= np.array(fixed.upper) * (1 + 1e-12))
    assert np.array_equal(fixed.epsilon, shuffled.epsilon)
    assert np.all(np.array(shuffled.upper) <= np.array(fixed.upper) * (1 + 1e-12))
    assert np.all(np.array(shuffled.lower) <= np.array(shuffled.upper))
    assert np.all(np.array(shuffled.lower) <= np.array(fixed.lower) + 1e-4)
    assert measurements[0].curve(Side.UPPER).epsilon(1e-8) == pytest.approx(fixed.epsilon[-1], rel=1e-12)


def test_labels_do_not_overlap():
    """Legend entries, tick labels and axis labels of the drawn picture are apart from each other and inside it."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    found = [measure(RUN.replace(**scheme_named(name).counterpart(RUN))) for name in SAMPLERS]
    ax = draw_profiles(figure.subplots(), profiles(list(SAMPLERS), found))
    figure.savefig("/dev/null", format="png")
    texts = [*ax.get_legend().get_texts(), ax.xaxis.label, ax.yaxis.label]
    texts += [t for axis in (ax.xaxis, ax.yaxis) for t in axis.get_ticklabels() if t.get_text() and t.get_visible()]
    boxes = [text.get_window_extent() for text in texts]
    inside = figure.bbox
    assert len(texts) >= 6 + 2
    for i, box in enumerate(boxes):
        assert inside.x0 <= box.x0 < box.x1 <= inside.x1
        assert not any(box.overlaps(other) for other in boxes[:i])
