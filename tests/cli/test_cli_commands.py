"""`calibrate`, `curve`, `compare`, `theorem`, `reproduce`, `--version`."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import mpmath as mp
import pytest

from calipers._version import __version__

RUN = ("--sample-rate", 0.01, "--steps", 1000, "--noise-multiplier", 1)
OPEN_RUN = ("--sample-rate", 0.01, "--steps", 1000)


def test_version(calipers):
    assert calipers("--version").stdout == f"calipers, version {__version__}\n"


@pytest.mark.parametrize("command", ["measure", "calibrate", "curve", "compare", "theorem", "reproduce"])
def test_every_command_teaches_by_example(calipers, command):
    result = calipers(command, "--help")
    assert result.exit_code == 0
    assert f"calipers {command} " in result.stdout
    assert "Example" in result.stdout


# calibrate


def test_calibrate_prints_the_contract(calipers, calibrated_with):
    result = calipers("calibrate", *OPEN_RUN, "--epsilon", 3, "--delta", 1e-5, "--json")
    record = json.loads(result.stdout)
    assert list(record) == ["noise_multiplier", "run", "target", "achieved", "provenance"]
    assert record["target"] == {"epsilon": 3.0, "delta": 1e-5}
    assert record["run"]["noise_multiplier"] == record["noise_multiplier"] == 0.123456789012
    assert record["achieved"] == {"lower": 0.98765432, "upper": 0.99876543}


def test_calibrate_prints_the_noise_rounded_up(calipers, calibrated_with):
    output = calipers("calibrate", *OPEN_RUN, "--tpr", 0.2, "--fpr", 0.1).stdout
    assert "A noise multiplier of 0.12345679 is enough for tpr = 0.2, fpr = 0.1" in output
    assert "at least 0.98765 at most 0.99877" in output
    assert "noise_multiplier = 0.123456789012\n" in output
    assert calibrated_with[0][1] == {"tpr": 0.2, "fpr": 0.1}


NOISY_FILES = {
    "tree": 'noise_matrix = "tree"\nsteps = 16\nmin_separation = 4\nfixed_order = true\n',
    "matrix": 'noise_matrix = "banded.txt"\nsteps = 12\nmin_separation = 3\n',
    "selection": 'selected_mean = 10\ntrials = "poisson"\nsample_rate = 1.0\nsteps = 4\n',
    "beside": "additional_query = [9.0, 12.0]\nsample_rate = 1.0\nsteps = 4\n",
    "count": "clip_count_noise = 12.8\nsample_rate = 1.0\nsteps = 4\n",
}


@pytest.mark.parametrize("kind", NOISY_FILES)
def test_calibrate_takes_run_files_that_say_more_than_a_run(calipers, tmp_path, kind):
    """The run file that is printed, measured again, meets the target, and with less noise does not."""
    (tmp_path / "banded.txt").write_text("1\n0.5\n0.25\n")
    path = tmp_path / "run.toml"
    path.write_text(NOISY_FILES[kind])
    asked = ("calibrate", "--run", path, "--epsilon", 2, "--delta", 1e-5, "--tolerance", 0.01)
    printed = calipers(*asked).stdout.split("The run, as a run file")[1].splitlines()
    found = json.loads(calipers(*asked, "--json").stdout)
    noise = found["noise_multiplier"]
    assert found["achieved"]["upper"] <= 2.0
    path.write_text("\n".join(line.strip() for line in printed[1 : printed.index("", 1)]))
    again = json.loads(calipers("measure", "--run", path, "--delta", 1e-5, "--json").stdout)["epsilon"][0]
    assert again["upper"] <= 2.0 * (1.0 + 1e-3)
    less = json.loads(
        calipers("measure", "--run", path, "--noise-multiplier", 0.95 * noise, "--delta", 1e-5, "--json").stdout
    )
    assert less["epsilon"][0]["upper"] > 2.0


def test_calibrate_refuses_a_guarantee(refused, tmp_path):
    path = tmp_path / "stated.toml"
    path.write_text("[guarantee]\nepsilon = 3\ndelta = 1e-5\n")
    assert "no noise that could be changed" in refused("calibrate", "--run", path, "--mu", 0.5)


def test_calibrate_says_what_licenses_the_noise(calipers):
    """Five full batches: the Gaussian theorem above, the likelihood ratio test below, and the notes of the run."""
    output = " ".join(calipers("calibrate", "--sample-rate", 1, "--steps", 5, "--mu", 0.5, "--explain").stdout.split())
    assert "achieved (upper): proof. The record takes part in 5 Gaussian releases at known times." in output
    assert "achieved (lower): attack. The likelihood ratio test" in output
    assert "What counts as released is every noisy sum" in output.partition(" Notes ")[2]


def test_calibrate_takes_a_run_file_without_noise(calipers, calibrated_with, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("sample_rate = 0.1\nsteps = 3\n")
    assert calipers("calibrate", "--run", path, "--mu", 0.5).exit_code == 0
    assert calibrated_with[0][0][0].total_steps == 3


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ((), "Name a target"),
        (("--epsilon", 1), "--epsilon needs --delta"),
        (("--delta", 1e-5), "--delta needs --epsilon"),
        (("--fpr", 0.1), "--fpr needs --tpr"),
        (("--mu", 1, "--advantage", 0.1), "--mu and --advantage contradict"),
        (("--epsilon", 1, "--delta", 1e-5, "--mu", 1), "--epsilon and --mu contradict"),
        (("--mu", "large"), "is not a number"),
    ],
)
def test_calibrate_wants_one_whole_target(refused, calibrated_with, target, message):
    assert message in refused("calibrate", *OPEN_RUN, *target)
    assert calibrated_with == []


def test_calibrate_changes_the_noise_of_all_phases_by_one_factor(calipers, tmp_path):
    """Two full batches with noises 1 : 2 are mu-GDP with mu^2 = 1/s^2 + 1/(2 s)^2, so s = sqrt(1.25)/mu."""
    path = tmp_path / "run.toml"
    path.write_text("sample_rate = 1.0\nsteps = 1\n[[phase]]\nnoise_multiplier = 1\n[[phase]]\nnoise_multiplier = 2\n")
    record = json.loads(calipers("calibrate", "--run", path, "--mu", 0.5, "--json").stdout)
    first, second = record["noise_multipliers"]
    assert record["noise_multiplier"] == first == pytest.approx(math.sqrt(1.25) / 0.5, rel=1e-3)
    assert second == 2 * first
    assert [phase["noise_multiplier"] for phase in record["run"]["phase"]] == [first, second]
    assert record["achieved"]["upper"] <= 0.5
    assert "Noise multipliers of 2.23" in calipers("calibrate", "--run", path, "--mu", 0.5).stdout


# curve


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_curve_writes_both_jaws_and_the_proof_lies_below_the_attack(calipers, measured_with):
    rows = rows_of(calipers("curve", *RUN).stdout)
    assert list(rows[0]) == ["side", "alpha", "beta"]
    upper, lower = ([(r["alpha"], float(r["beta"])) for r in rows if r["side"] == s] for s in ("upper", "lower"))
    assert [alpha for alpha, _ in upper] == [alpha for alpha, _ in lower]
    assert all(proof <= attack for (_, proof), (_, attack) in zip(upper, lower, strict=True))
    assert float(upper[0][0]) == 0.0
    assert float(upper[-1][0]) == 1.0


def test_one_side_is_one_side(calipers, measured_with):
    assert {row["side"] for row in rows_of(calipers("curve", *RUN, "--side", "lower").stdout)} == {"lower"}


def test_profile_runs_from_zero_down_to_a_small_delta(calipers, measured_with):
    rows = rows_of(calipers("curve", *RUN, "--profile", "--side", "upper").stdout)
    assert list(rows[0]) == ["side", "epsilon", "delta"]
    deltas = [float(row["delta"]) for row in rows]
    assert float(rows[0]["epsilon"]) == 0.0
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[-1] <= 1e-9


def test_profile_of_a_gaussian_encloses_the_closed_form(calipers):
    """Five full batches with noise 2: delta(epsilon) of mu = sqrt(5)/2 lies between the sides at all 81 epsilons."""
    rows = rows_of(calipers("curve", "--sample-rate", 1, "--steps", 5, "--noise-multiplier", 2, "--profile").stdout)
    upper, lower = ([row for row in rows if row["side"] == side] for side in ("upper", "lower"))
    assert len(upper) == len(lower) == 81
    for above, below in zip(upper, lower, strict=True):
        assert above["epsilon"] == below["epsilon"]
        epsilon = mp.mpf(above["epsilon"])
        mu = mp.sqrt(5) / 2
        true = mp.ncdf(-epsilon / mu + mu / 2) - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2)
        assert float(below["delta"]) <= true <= float(above["delta"]) < 1.1 * true + 1e-11


def test_profile_at_the_epsilons_asked_for(calipers, measured_with):
    rows = rows_of(calipers("curve", *RUN, "--profile", "--epsilon", 2, "--epsilon", 1).stdout)
    assert [(row["side"], row["epsilon"]) for row in rows] == [
        ("upper", "1.0"),
        ("upper", "2.0"),
        ("lower", "1.0"),
        ("lower", "2.0"),
    ]


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
@pytest.mark.parametrize("profile", [(), ("--profile",)])
def test_pictures_are_written_by_their_ending(calipers, measured_with, tmp_path, ending, magic, profile):
    path = tmp_path / f"curve.{ending}"
    result = calipers("curve", *RUN, *profile, "--output", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert path.read_bytes().startswith(magic)


def test_curve_refuses_what_it_cannot_write(refused, measured_with, tmp_path):
    assert "A picture needs a file" in refused("curve", *RUN, "--format", "png")
    assert "from its ending" in refused("curve", *RUN, "--output", tmp_path / "curve.pdf")
    assert "there is no folder" in refused("curve", *RUN, "--output", tmp_path / "absent" / "curve.csv")
    assert "contradict each other" in refused("curve", *RUN, "--format", "png", "--output", tmp_path / "curve.csv")
    assert "it is a folder" in refused("curve", *RUN, "--format", "png", "--output", tmp_path)
    assert "add --profile" in refused("curve", *RUN, "--epsilon", 1)
    assert "epsilon in" in refused("curve", *RUN, "--profile", "--epsilon", "nan")


# compare


@pytest.fixture
def run_files(tmp_path, monkeypatch):
    """Run files named after their noise multiplier, in the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(**changes: dict[str, object]) -> list[str]:
        for name, change in changes.items():
            record = {"sample_rate": 0.1, "steps": 3, "noise_multiplier": 1.0} | change
            lines = (f"{key} = {json.dumps(value)}\n" for key, value in record.items())
            Path(f"{name}.toml").write_text("".join(lines))
        return [f"{name}.toml" for name in changes]

    return write


def test_compare_calls_more_noise_more_private_only_when_the_jaws_prove_it(calipers, measured_with, run_files):
    """mu 1 and 0.5 are 2 apart with jaws of 1 percent; mu 1 and 1.01 overlap."""
    files = run_files(loud={"noise_multiplier": 2.0}, quiet={}, near={"noise_multiplier": 1.01}, twin={})
    record = json.loads(calipers("compare", *files, "--json").stdout)
    orders = {(v["first"][:-5], v["second"][:-5]): v["order"] for v in record["verdicts"]}  # without ".toml"
    assert orders == {
        ("loud", "quiet"): "first is more private",
        ("loud", "near"): "first is more private",
        ("loud", "twin"): "first is more private",
        ("quiet", "near"): "not settled",
        ("quiet", "twin"): "same",
        ("near", "twin"): "not settled",
    }
    assert [run["name"] for run in record["runs"]] == files


def test_compare_reads_the_other_way_round_too(calipers, measured_with, run_files):
    output = calipers("compare", *run_files(quiet={}, loud={"noise_multiplier": 2.0})).stdout
    won = "sigma 2 is certainly more private than sigma 1, at every false positive rate"
    assert " ".join(output.split()).startswith(f"{won}, but for differences below 1e-9 in the true positive rate.")
    assert "sigma 2 (loud.toml): 3 steps" in output


def test_compare_says_when_the_questions_differ(calipers, measured_with, run_files):
    output = calipers("compare", *run_files(a={}, b={"noise_multiplier": 9.0, "view": "isolated"})).stdout
    assert "do not compare" in output
    assert "certainly" not in output


def test_compare_refuses(refused, measured_with, run_files):
    files = run_files(a={}, b={"noise_multiplier": -1.0})
    assert "at least two runs" in refused("compare", files[0])
    assert "b.toml: Expected noise_multiplier" in refused("compare", *files)
    assert "absent.toml" in refused("compare", files[0], "absent.toml")


# reproduce


@pytest.mark.slow
def test_a_search_that_aims_far_beyond_all_noise_stays_in_its_range(calipers) -> None:
    """A cycle of 60,000 groups: extrapolated, the logarithm of the noise left the doubles (OverflowError)."""
    run = (
        "--sampler",
        "cyclic-poisson",
        "--sample-rate",
        0.5,
        "--epochs",
        2,
        "--cycle",
        60000,
        "--noise-multiplier",
        1,
    )
    found = calipers("calibrate", *run, "--clip-count-noise", 0.7, "--epsilon", 5.0, "--delta", 1e-5)
    assert (found.exit_code, "2.49" in found.stdout) == (0, True)
