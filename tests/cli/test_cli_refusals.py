"""Bad input ends with exit status 2, one sentence on standard error and nothing on standard output."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from calipers.errors import CertificationError

SIZES = ("--dataset-size", 1000, "--batch-size", 10)
RUN = (*SIZES, "--epochs", 3, "--noise-multiplier", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needs --noise-multiplier; --batch-size or --sample-rate; --steps or --epochs: add them"),
        (("--noise", 1), "No such option .--noise.. Did you mean --noise-multiplier"),
        ((*SIZES, "--epochs", 3), "needs --noise-multiplier"),
        ((*SIZES, "--noise-multiplier", 1), "give --steps or --epochs"),
        ((*RUN, "--steps", 3), "--steps and --epochs contradict"),
        ((*RUN, "--sample-rate", 0.1), "--batch-size and --sample-rate contradict"),
        (("--batch-size", 10, "--epochs", 3, "--noise-multiplier", 1), "--batch-size needs --dataset-size"),
        (
            ("--dataset-size", 5, "--batch-size", 10, "--steps", 3, "--noise-multiplier", 1),
            "--batch-size <= --dataset-size",
        ),
        (
            ("--sample-rate", 1.5, "--steps", 3, "--noise-multiplier", 1),
            "Expected --sample-rate in .* got --sample-rate 1.5",
        ),
        (("--sample-rate", 0, "--steps", 3, "--noise-multiplier", 1), "Expected --sample-rate in"),
        (("--sample-rate", "nan", "--steps", 3, "--noise-multiplier", 1), "Expected --sample-rate in .*nan"),
        (("--sample-rate", 0.3, "--steps", 3, "--noise-multiplier", 1, "--sampler", "shuffle"), "--sample-rate = 1/M"),
        (
            (*SIZES, "--steps", 250, "--noise-multiplier", 1, "--sampler", "shuffle", "--reshuffle", "once"),
            "use 200 or 300 steps",
        ),
        ((*SIZES, "--epochs", 0.123, "--noise-multiplier", 1), "give --steps"),
        ((*SIZES, "--epochs", 3, "--noise-multiplier", 0), "Expected --noise-multiplier in"),
        ((*SIZES, "--epochs", 3, "--noise-multiplier", -1), "Expected --noise-multiplier in"),
        ((*SIZES, "--epochs", 3, "--noise-multiplier", "inf"), "Expected --noise-multiplier in .*inf"),
        ((*SIZES, "--epochs", 3, "--noise-multiplier", "nan"), "Expected --noise-multiplier in .*nan"),
        ((*SIZES, "--epochs", 3, "--noise-multiplier", "much"), "'much' is not a number"),
        ((*SIZES, "--epochs", 0, "--noise-multiplier", 1), "Expected --epochs in"),
        ((*SIZES, "--epochs", "inf", "--noise-multiplier", 1), "Expected --epochs in"),
        ((*SIZES, "--steps", 2.5, "--noise-multiplier", 1), "'2.5' is not a whole number"),
        ((*SIZES, "--steps", "9" * 400, "--noise-multiplier", 1), "Expected --steps in"),
        ((*SIZES, "--steps", "9" * 9000, "--noise-multiplier", 1), "is not a whole number"),
        ((*RUN, "--sampler", "sequential"), "is not one of 'poisson'"),
        ((*RUN, "--dimension", 0), "Expected --dimension in"),
        ((*RUN, "--normalization", "mean"), "is not one of 'none'"),
        ((*RUN, "--delta", 0), "Expected --delta in"),
        ((*RUN, "--delta", 1), "Expected --delta in"),
        ((*RUN, "--delta", "nan"), "Expected --delta in .*nan"),
        ((*RUN, "--delta", 1e-5, "--delta", -1), "Expected --delta in .*-1"),
        ((*RUN, "--epsilon", -1), "Expected --epsilon in"),
        ((*RUN, "--epsilon", "inf"), "Expected --epsilon in"),
        ((*RUN, "--fpr", 1.5), "Expected --fpr in"),
        ((*RUN, "--fpr", "x"), "'x' is not a number"),
        ((*RUN, "--delta0", 1), "Expected --delta0 in"),
        ((*RUN, "--delta0", "nan"), "Expected --delta0 in"),
        ((*RUN, "--tolerance", 0), "Expected --tolerance in"),
        ((*RUN, "--tolerance", "nan"), "Expected --tolerance in"),
        ((*RUN, "--tolerance", 2), "Expected --tolerance in"),
        ((*RUN, "--banana", 2), "No such option"),
        ((*RUN, "extra"), "Cannot read the run file extra"),
    ],
)
def test_measure_refuses(refused, measured_with, arguments, message):
    import re

    assert re.search(message, refused("measure", *arguments))
    assert measured_with == []


def test_options_replace_what_a_run_file_says(calipers, refused, measured_with, tmp_path):
    """A key that contradicts another drops it, in every phase; one length for several phases is refused."""
    path = tmp_path / "run.toml"
    path.write_text("sample_rate = 0.1\nsteps = 3\n")
    assert calipers("measure", "--run", path, "--noise-multiplier", 2, "--epochs", 7).exit_code == 0
    run = measured_with[-1][0]
    assert (run.steps, run.epochs, run.noise_multiplier) == (None, 7, 2.0)
    path.write_text("sample_rate = 0.1\nnoise_multiplier = 1\n[[phase]]\nsteps = 3\n[[phase]]\nsteps = 4\n")
    assert calipers("measure", "--run", path, "--noise-multiplier", 2).exit_code == 0
    assert [(run.steps, run.noise_multiplier) for run in measured_with[-1][0]] == [(3, 2.0), (4, 2.0)]
    assert "--steps would give all 2 phases" in refused("measure", "--run", path, "--steps", 3)
    assert "Expected --noise-multiplier" in refused("measure", "--run", path, "--noise-multiplier", -1)


@pytest.mark.parametrize("command", ["measure", "curve", "calibrate"])
def test_unreadable_run_files_are_named(refused, tmp_path, command):
    target = ("--mu", 1) if command == "calibrate" else ()
    assert "absent.toml: No such file" in refused(command, "--run", tmp_path / "absent.toml", *target)
    assert "Is a directory" in refused(command, "--run", tmp_path, *target)
    (tmp_path / "bad.toml").write_text("steps = [\n")
    assert "bad.toml is not valid TOML" in refused(command, "--run", tmp_path / "bad.toml", *target)
    (tmp_path / "odd.toml").write_text("stepps = 3\n")
    assert "did you mean 'steps'?" in refused(command, "--run", tmp_path / "odd.toml", *target)


def test_a_bound_that_cannot_be_certified_is_exit_status_1(calipers, measured_with, monkeypatch):
    def fail(*_arguments, **_options):
        raise CertificationError("The tail\nis too deep.")

    monkeypatch.setattr(sys.modules["calipers.measure"], "measure", fail)
    result = calipers("measure", *RUN)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "Error: The tail is too deep.\n")


def test_an_interrupt_is_exit_status_130(calipers, measured_with, monkeypatch):
    def interrupt(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["calipers.measure"], "measure", interrupt)
    result = calipers("measure", *RUN)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Interrupted.\n")


def test_the_real_command_refuses_without_a_traceback():
    command = [
        sys.executable,
        "-m",
        "calipers",
        "measure",
        "--sample-rate",
        "2",
        "--steps",
        "1",
        "--noise-multiplier",
        "1",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: Expected --sample-rate in")
    assert result.stderr.count("\n") == 1


def cpu() -> float:
    """CPU seconds of all processes that were started and have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def test_help_answers_at_once():
    """Best of three under 0.7 s of CPU: no command pulls numpy or matplotlib in before it is used."""
    times = []
    for _ in range(3):
        start = cpu()
        subprocess.run([sys.executable, "-m", "calipers", "--help"], capture_output=True, check=True)
        times.append(cpu() - start)
    assert min(times) < 0.7
    heavy = "import sys, calipers.cli; print([m for m in ('numpy', 'scipy', 'matplotlib') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
