"""Run files: what is written reads back, and what is wrong is named with the file and the key."""

from __future__ import annotations

import os
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.phases import load_runs
from calipers.run import Run
from calipers.scope import batches_text

MNIST = """\
dataset_size = 60000
batch_size = 256
epochs = 60
noise_multiplier = 1.1
sampler = "shuffle"
"""


@pytest.fixture
def run_file(tmp_path):
    def write(text: str | bytes) -> str:
        path = tmp_path / "run.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def test_a_run_file_reads_as_the_run_it_describes(run_file):
    expected = Run(dataset_size=60_000, batch_size=256, epochs=60, noise_multiplier=1.1, sampler="shuffle")
    assert Run.from_toml(run_file(MNIST)) == expected


@given(noise=st.floats(1e-300, 1e300), rate=st.floats(2**-53, 1))
def test_every_double_survives_the_file(tmp_path_factory, noise, rate):
    run = Run(sample_rate=rate, steps=3, noise_multiplier=noise)
    path = tmp_path_factory.mktemp("runs") / "run.toml"
    path.write_text(run.to_toml())
    assert Run.from_toml(path) == run


def test_what_nobody_named_is_a_comment_of_the_file_and_assumed_again(tmp_path):
    """Written out as named, adjacency and view would no longer be marked as assumed in a report."""
    run = Run(sample_rate=0.1, steps=3, noise_multiplier=2.0, normalization="none")
    (tmp_path / "run.toml").write_text(run.to_toml())
    assert '# assumed: adjacency = "add-remove"' in run.to_toml()
    assert 'normalization = "none"' in run.to_toml().splitlines()
    assert Run.from_toml(tmp_path / "run.toml").assumed == run.assumed


def test_phases_inherit_and_override(run_file):
    phases = load_runs(run_file(MNIST + "[[phase]]\nepochs = 1\nnoise_multiplier = 2.0\n[[phase]]\nsteps = 2106\n"))
    assert [(p.epochs, p.steps, p.noise_multiplier) for p in phases] == [(1, None, 2.0), (None, 2106, 1.1)]
    assert {p.sampler for p in phases} == {"shuffle"}


def test_from_toml_refuses_several_phases_but_takes_one(run_file):
    assert Run.from_toml(run_file(MNIST + "[[phase]]\nepochs = 1\n")).epochs == 1
    with pytest.raises(InputError, match="holds 2 phases; read it with load_runs"):
        Run.from_toml(run_file(MNIST + "[[phase]]\n[[phase]]\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset_size = = 3", "is not valid TOML"),
        ("a" * 10 + "[", "is not valid TOML"),
        ("x = " + "[" * 5000, "is not valid TOML"),
        (b"\xff\xfe\x00", "not a text file in UTF-8"),
        ("", "needs noise_multiplier"),
        (
            MNIST.replace("noise_multiplier", "noise-multiplier"),
            "Unknown key 'noise-multiplier'; did you mean 'noise_mult",
        ),
        (MNIST + "banana = 3\n", "Unknown key 'banana'; the keys are dataset_size"),
        (MNIST + "sample_rate = 0.1\n", "batch_size and sample_rate contradict"),
        (MNIST.replace("60000", '"60000"'), "dataset_size in .*got dataset_size='60000'"),
        (MNIST.replace("60000", "true"), "dataset_size in"),
        (MNIST.replace("60000", "1979-05-27"), "dataset_size in"),
        (MNIST.replace("60000", "9" * 400), "dataset_size in"),
        (MNIST.replace("1.1", "nan"), "noise_multiplier in .*got noise_multiplier=nan"),
        (MNIST.replace("1.1", "inf"), "noise_multiplier in"),
        (MNIST.replace('"shuffle"', "[1]"), "sampler to be one of"),
        (MNIST + "[[phases]]\nepochs = 1\n", "did you mean 'phase'"),
        (MNIST + "phase = 3\n", r"write \[\[phase\]\]"),
        (MNIST + "phase = []\n", r"write \[\[phase\]\]"),
        (MNIST + "phase = [1]\n", r"write \[\[phase\]\]"),
        (MNIST + "[[phase]]\nsigma = 2\n", "Unknown key 'sigma'"),
        (MNIST + "[[phase]]\n[[phase]]\nview = 'isolated'\n", "share view"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence_that_names_it(run_file, text, message):
    path = run_file(text)
    with pytest.raises(InputError, match=message) as refusal:
        load_runs(path)
    assert path in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_files_that_cannot_be_read_are_refused(tmp_path, run_file):
    with pytest.raises(InputError, match=r"Cannot read the run file .*absent\.toml: No such file"):
        load_runs(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="Is a directory"):
        load_runs(tmp_path)
    with pytest.raises(InputError, match="null byte"):
        load_runs("run\0.toml")
    if os.geteuid() != 0:
        path = run_file(MNIST)
        os.chmod(path, 0)
        with pytest.raises(InputError, match="Permission denied"):
            load_runs(path)


def test_defaults_fill_only_what_the_file_leaves_out(run_file):
    (run,) = load_runs(run_file("sample_rate = 0.1\nsteps = 3\n"), defaults={"noise_multiplier": 9.0, "epochs": 4})
    assert (run.noise_multiplier, run.steps, run.epochs) == (9.0, 3, None)


@pytest.mark.parametrize("record", [None, 3, "run", [("steps", 1)]])
def test_from_dict_wants_a_mapping(record):
    with pytest.raises(InputError, match="Expected a mapping"):
        Run.from_dict(record)


def test_none_counts_as_absent():
    run = Run.from_dict({"sample_rate": 0.1, "steps": 2, "noise_multiplier": 1, "epochs": None, "sampler": None})
    assert run == Run(sample_rate=0.1, steps=2, noise_multiplier=1.0)


@pytest.mark.parametrize(("text", "rate"), [("1/235", 1 / 235), (" 256 / 60,000", 256 / 60000), ("1/1", 1.0)])
def test_a_sample_rate_may_be_a_fraction(tmp_path, text: str, rate: float) -> None:
    """In Python and in a run file it is the double nearest to the fraction, which a script divides to."""
    described = Run(sample_rate=text, steps=2, noise_multiplier=1.0)  # type: ignore[arg-type]  # as a file may say it
    assert described.sample_rate == rate == float(Fraction(*map(int, text.replace(",", "").split("/"))))
    (tmp_path / "run.toml").write_text(f'sample_rate = "{text}"\nsteps = 2\nnoise_multiplier = 1\n')
    assert Run.from_toml(tmp_path / "run.toml") == described


@pytest.mark.parametrize(
    "text", ["1/0", "0/5", "3/2", "1/2/3", "0.5/2", "-1/2", "1e3/5", "half", "1/99999999999999999"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    """A quotient of whole numbers in (0, 1], or nothing."""
    with pytest.raises(InputError, match="sample_rate"):
        Run(sample_rate=text, steps=2, noise_multiplier=1.0)  # type: ignore[arg-type]  # as a file may say it


@pytest.mark.parametrize(
    ("rate", "said"),
    [("1/235", "1/235"), ("1/6,000", "1/6,000"), (0.01, "0.01"), (0.0166, "0.0166"), ("2/7", "0.28571")],
)
def test_a_sentence_says_the_rate_as_it_was_given(rate: str | float, said: str) -> None:
    """One over a whole number is not rounded; other fractions are, downwards."""
    assert f"with probability {said})" in batches_text(Run(sample_rate=rate, steps=2, noise_multiplier=1.0))  # type: ignore[arg-type]
