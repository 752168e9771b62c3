"""Forty things people type wrong: one clear sentence, exit status 2, no traceback, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from calipers.cli import main

RUN = ("--sample-rate", "0.1", "--steps", "10", "--noise-multiplier", "2")
SIZES = ("--dataset-size", "1000", "--batch-size", "10")

# What is typed, and what the sentence must say.
WRONG = [
    (("measure", "--sigma", "1"), "Did you mean --noise-multiplier?"),
    (("measure", "--q", "0.1"), "Did you mean --sample-rate?"),
    (("measure", "-q", "0.1"), "Did you mean --sample-rate?"),
    (("measure", "--N", "10"), "Did you mean --dataset-size?"),
    (("measure", "--batch_size", "10"), "Did you mean --batch-size?"),
    (("measure", "--eps", "1"), "Did you mean --epsilon?"),
    (("measure", "--alpha", "0.1"), "Did you mean --fpr?"),
    (("measure", "--shuffle"), "Write --sampler shuffle."),
    (("measure", "--config", "x.toml"), "Did you mean --run?"),
    (("measure", *RUN, "--verbose"), "Did you mean --explain?"),
    (("measure", *RUN, "--sampler", "shuffled"), "--sampler"),
    (("measure", *RUN, "--sampler", ""), "--sampler"),
    (("measure", "--sample-rate", "0,1", "--steps", "10", "--noise-multiplier", "2"), "decimal point as a point"),
    (("measure", "--sample-rate", "10%", "--steps", "10", "--noise-multiplier", "2"), "'10%' is not a number"),
    (("measure", "--sample-rate", "0.1", "--steps", "1.5e0", "--noise-multiplier", "2"), "not a whole number"),
    (("measure", "--sample-rate", "0.1", "--steps", "1e400", "--noise-multiplier", "2"), "not a whole number"),
    (("measure", "--sample-rate", "0.1", "--steps", "60,00", "--noise-multiplier", "2"), "decimal point as a point"),
    (("measure", "--sample-rate", "0.1", "--steps", "-5", "--noise-multiplier", "2"), "Expected --steps in"),
    (("measure", "--sample-rate", "256", "--steps", "5", "--noise-multiplier", "2"), "Expected --sample-rate in"),
    (("measure", "--sample-rate", "0.1", "--steps", "5", "--noise-multiplier", "0"), "Expected --noise-multiplier in"),
    (("measure", "--sample-rate", "0.1", "--steps", "5"), "needs --noise-multiplier"),
    (("measure", "--batch-size", "5", "--steps", "5", "--noise-multiplier", "1"), "--batch-size needs --dataset-size"),
    (("measure", *SIZES, "--noise-multiplier", "1"), "give --steps or --epochs"),
    (
        ("measure", *SIZES, "--epochs", "1", "--steps", "3", "--noise-multiplier", "1"),
        "--steps and --epochs contradict",
    ),
    (("measure", *RUN, "--last-batch", "keep"), "--last-batch keep"),
    (("measure", *RUN, "--normalization", "expected"), "add --dataset-size"),
    (("measure", *RUN, "--delta", "1"), "Expected --delta in"),
    (("measure", *RUN, "--delta", "1e-5,1e-6"), "is not a number"),
    (("measure", *RUN, "--tolerance", "0"), "Expected --tolerance in"),
    (("measure", *RUN, "--fpr", "5%"), "is not a number"),
    (("measure", *RUN, "absent.toml"), "absent.toml: No such file"),
    (("measure", *RUN, "--noise-multiplier", "3"), "given 2 times, with different values"),
    (("measure", *RUN, "--dataset-size-range", "5", "3"), "Expected --dataset-size-range LOW HIGH"),
    (("measure", "--run", "absent.toml"), "absent.toml: No such file"),
    (("measure", "--run", "phases.toml", "--steps", "5"), "--steps would give all 2 phases"),
    (("measure", "--run", "thesis.csv"), "thesis.csv is not valid TOML"),
    (("measure", *RUN, "--report", "thesis.md"), "was not written by Calipers"),
    (("measure", *RUN, "--report", "report.docx"), "end it in .html, .md or .json"),
    (("measure", *RUN, "--report", "nowhere/report.html"), "there is no folder"),
    (("curve", *RUN, "--output", "thesis.csv"), "was not written by Calipers"),
    (("calibrate", "--sample-rate", "0.1", "--steps", "5", "--epsilon", "3"), "--epsilon needs --delta"),
    (("calibrate", "--sample-rate", "0.1", "--steps", "5", "--epsilon", "3", "--delta", "2"), "Expected --delta in"),
    (("compare", "phases.toml"), "at least two runs, got 1"),
    (("compare", "a=phases.toml", "a=phases.toml"), "different names"),
    (("certify", *RUN, "--delta", "1e-5", "-o", "thesis.md"), "was not written by Calipers"),
    (("mesure", *RUN), "No such command"),
]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with somebody's own files in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.md").write_text("# My thesis\n")
    (tmp_path / "thesis.csv").write_text("name,grade\n")
    (tmp_path / "binary.toml").write_bytes(bytes(range(256)))
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "comma.toml").write_text("sample_rate = 0,1\nsteps = 3\nnoise_multiplier = 2\n")
    (tmp_path / "phases.toml").write_text(
        "sample_rate = 0.1\nnoise_multiplier = 2\n[[phase]]\nsteps = 1\n[[phase]]\nsteps = 2\n"
    )
    return tmp_path


def test_there_are_forty():
    assert len(WRONG) >= 40
    assert len({arguments for arguments, _ in WRONG}) == len(WRONG)


@pytest.mark.parametrize(("arguments", "said"), WRONG, ids=[" ".join(arguments)[:60] for arguments, _ in WRONG])
def test_one_sentence_and_nothing_lost(refused, desk, arguments, said):
    """`refused` checks the exit status, the empty output and the single line."""
    before = {path.name: path.read_bytes() for path in desk.iterdir()}
    assert said in refused(*arguments)
    assert {path.name: path.read_bytes() for path in desk.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["curve --output x.csv", "measure --report x.html", "certify --delta 1e-5 -o x.cert.json"]
)
def test_one_that_is_killed_while_it_writes_loses_nothing(desk, command):
    """kill -9 before the last step of writing: what was there is whole, and the name is free again."""
    first, *rest = command.split()
    typed = ["calipers", first, *RUN, *rest]
    place = desk / rest[-1]
    code = f"import os, signal, sys; from calipers.cli import main; sys.argv = {typed!r}; KILL; main()"
    kill = "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", code.replace("KILL", "pass")], check=True, capture_output=True)
    before = place.read_bytes()
    killed = subprocess.run([sys.executable, "-c", code.replace("KILL", kill)], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert place.read_bytes() == before
    subprocess.run([sys.executable, "-c", code.replace("KILL", "pass")], check=True, capture_output=True)


def test_a_closed_standard_output_is_refused(desk):
    """`calipers ... >&-`: a sentence, not a traceback; and no file becomes standard output."""
    command = f'"{sys.executable}" -m calipers measure {" ".join(RUN)} --report r.html >&-'
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, cwd=desk)
    assert result.returncode == 2
    assert result.stderr == "Error: Standard output is closed; there is nowhere to print the result to.\n"
    assert not (desk / "r.html").exists()


def test_a_reader_that_stops_early_is_no_failure_of_ours(desk):
    """`calipers ... | head -1` ends without a traceback."""
    command = f'"{sys.executable}" -m calipers theorem --list | head -1'
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, cwd=desk)
    assert result.stderr == ""


# What people type right, though it looks unusual.


@pytest.mark.parametrize("steps", ["1e3", "1_000", "1,000", "1000.0"])
def test_whole_numbers_as_people_write_them(calipers, measured_with, steps):
    assert calipers("measure", "--sample-rate", 0.1, "--steps", steps, "--noise-multiplier", 1).exit_code == 0
    assert measured_with[-1][0].steps == 1000


def test_a_large_whole_number_keeps_every_digit(calipers, measured_with):
    steps = "9,007,199,254,740,991"
    assert calipers("measure", "--sample-rate", 0.1, "--steps", steps, "--noise-multiplier", 1).exit_code == 0
    assert measured_with[-1][0].steps == 2**53 - 1


def test_words_in_any_case(calipers, measured_with):
    assert calipers("measure", *SIZES, "--epochs", 1, "--noise-multiplier", 1, "--sampler", "Shuffle").exit_code == 0
    assert measured_with[-1][0].sampler == "shuffle"


def test_a_run_from_standard_input_may_begin_with_a_mark(measured_with):
    """A byte order mark, as some editors write it, is no part of the first key; `--run -` reads what is piped in."""
    text = b"\xef\xbb\xbfsample_rate = 0.1\nsteps = 3\nnoise_multiplier = 2\n"
    assert CliRunner().invoke(main, ["measure", "--run", "-"], input=text).exit_code == 0
    assert measured_with[-1][0].steps == 3


@pytest.mark.parametrize("typed", ["", "  \n"])
def test_an_empty_standard_input_is_said_to_be_empty(measured_with, typed):
    """A pipe whose first command printed nothing is no run file that lacks keys."""
    result = CliRunner().invoke(main, ["measure", "--run", "-"], input=typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: Standard input is empty; pipe a run file into it.\n"


def test_what_was_written_is_said_and_may_be_written_again(calipers, measured_with, desk):
    """A file of our own is replaced; one of somebody else's only when told to."""
    for _ in range(2):
        result = calipers("curve", *RUN, "--output", "curve.csv")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "wrote curve.csv\n")
    assert calipers("curve", *RUN, "--output", "thesis.csv", "--overwrite").exit_code == 0
    assert (desk / "thesis.csv").read_text().startswith("side,alpha,beta\n")


@pytest.mark.parametrize(
    ("words", "offered"), [("theorem chua-prop-3", "chua-prop-3.1"), ("measure --sampler sh", "shuffle")]
)
def test_a_shell_completes_names(words, offered):
    """What a shell is told for a word that has been begun."""
    typed = f"calipers {words}".split()
    environment = {
        **os.environ,
        "_CALIPERS_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(typed),
        "COMP_CWORD": str(len(typed) - 1),
    }
    command = [sys.executable, "-c", "from calipers.cli import main; main(prog_name='calipers')"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert f"plain,{offered}\n" in found


def test_options_are_compared_as_well_as_files(calipers, measured_with):
    """An option given twice makes two runs, named by it; beside one file, the file and the run so changed."""
    import json

    options = ("--sample-rate", 0.1, "--steps", 3, "--noise-multiplier", 1, "--noise-multiplier", 2, "--json")
    record = json.loads(calipers("compare", *options).stdout)
    assert [run["name"] for run in record["runs"]] == ["sigma 1", "sigma 2"]
    assert record["winner"] == "sigma 2"
    assert record["headline"].startswith("sigma 2 is certainly more private than sigma 1")


def test_one_file_is_compared_with_itself_changed(calipers, measured_with, desk):
    import json

    (desk / "run.toml").write_text("sample_rate = 0.1\nsteps = 3\nnoise_multiplier = 2\n")
    record = json.loads(calipers("compare", "run.toml", "--noise-multiplier", 4, "--json").stdout)
    assert [run["name"] for run in record["runs"]] == ["sigma 2", "sigma 4"]
    named = json.loads(
        calipers("compare", "mine=run.toml", "theirs=run.toml", "--noise-multiplier", 4, "--json").stdout
    )
    assert [run["name"] for run in named["runs"]] == ["mine", "theirs"]


# And what people who read on type wrong.
MORE = [
    (("measure",), "A run needs --noise-multiplier"),
    (("measure", *RUN[:4], "--noise-multiplier", "nan"), "Expected --noise-multiplier in"),
    (("measure", *RUN, "--unit", ""), "Expected --unit to be a short name such as 'user', got --unit ''"),
    (("measure", *RUN, "--records-per-unit", "3"), "--records-per-unit 3 needs a unit"),
    (("measure", *RUN, "--unit", "user", "--records-per-unit", "0"), "Expected --records-per-unit in"),
    (("measure", *RUN, "--epsilon", "-1"), "--epsilon"),
    (("measure", *RUN, "--fpr", "2"), "--fpr"),
    (("measure", "--run", "."), "directory"),
    (("measure", "--guarantee", "8,much"), "much"),
    (("measure", *RUN, "--guarantee", "8,1e-5"), "contradict each other"),
    (("measure", *RUN, "--trials", "poisson"), "--selected-mean"),
    (("measure", *RUN, "--certificate", "nowhere/x.json"), "there is no folder"),
    (("calibrate", "--sample-rate", "0.1", "--steps", "3"), "target"),
    (("check", "absent.toml", "--epsilon", "3", "--delta", "1e-5"), "absent.toml"),
    (("receipt",), "give a run file"),
    (("receipt", "phases.toml", "--library", "opacus"), "NAME=VERSION"),
    (("receipt", "phases.toml", "-o", "thesis.md"), "was not written by Calipers"),
    (("verify-receipt", "thesis.md"), "thesis.md"),
    (("export", "phases.toml", "--form", "poem"), "--form"),
    (("export", "phases.toml", "--form", "registry", "-o", "My-Model.yaml"), "named with small letters"),
    (("theorem", "no-such-theorem"), "no-such-theorem"),
    (("reproduce", "no-such-item"), "no-such-item"),
    (("curve", *RUN, "--format", "xml"), "--format"),
    (("verify", "."), "Is a directory; name a file that `calipers certify` wrote"),
    (("verify", "absent.json"), "No such file or directory; name a file"),
    (("measure", "--sample-rate", "0.1", "--steps", "\u0663", "--noise-multiplier", "2"), "the digits 0 to 9"),
    (("measure", "--sample-rate", "\u0660.1", "--steps", "3", "--noise-multiplier", "2"), "the digits 0 to 9"),
    (("measure", "--guarantee", "\u0668,1e-5"), "for example 8,1e-5"),
    (("measure", "--guarantee", "8,1e-5,3"), "for example 8,1e-5"),
    (("measure", "--zcdp", "-1"), "Expected --zcdp in"),
    (("measure", "--mu", "abc"), "'--mu': 'abc' is not a number"),
    (("measure", "--run", ""), "The name of the run file is empty"),
    (("measure", *RUN, "--deltaa", "3"), "Did you mean one of: '--delta'"),
    (("measure", *RUN, "--fail-on", "never"), "is not one of 'refuted'"),
    (("measure", *RUN, "--epsilon", "inf"), "Expected --epsilon in"),
    (("measure", *RUN, "--delta0", "1"), "Expected --delta0 in"),
    (("measure", *RUN, "--report", "."), "it is a folder; name a file in it"),
    (("measure", "--run", "phases.toml", "--batch-size", "0"), "--batch-size"),
    (("--foo",), "No such option '--foo'. Try"),
    (("",), "No such command ''"),
    (("audit",), "Missing argument 'TARGET'. Try"),
    (("audit", "nosuch"), "module:function"),
    (("audit", "builtin"), "builtin needs a run"),
    (("check", "phases.toml", "--epsilon", "three", "--delta", "1e-5"), "'--epsilon': 'three' is not a number"),
    (("check", "phases.toml", "--epsilon", "3"), "A budget needs --delta"),
    (("receipt", "phases.toml", "-o", "."), "it is a folder; name a file in it"),
    (("certify", *RUN, "--delta", "1e-5", "-o", ""), "without a name"),
    (("explore", "--port", "99999"), "Expected --port in"),
    (("compare", "phases.toml", "--sampler"), "requires an argument. Try"),
]


@pytest.mark.parametrize(("arguments", "said"), MORE, ids=[" ".join(arguments)[:60] for arguments, _ in MORE])
def test_one_sentence_for_those_who_read_on(refused, desk, arguments, said):
    """As above, for units, guarantees, receipts, papers."""
    before = {path.name: path.read_bytes() for path in desk.iterdir()}
    assert said in refused(*arguments)
    assert {path.name: path.read_bytes() for path in desk.iterdir()} == before


# Numbers as they are written elsewhere, words nearly right, and files that are something else.
ELSEWHERE = [
    (("measure", "--dataset-size", "60k", *RUN[2:]), "write it out, such as 60000 or 6e4 for 60k"),
    (("measure", "--dataset-size", "60.000", *RUN[2:]), "'60.000' may mean two numbers; write 60000, or 60"),
    (("measure", "--sample-rate", "0.5/100", *RUN[2:]), "write the quotient as a decimal number"),
    (("measure", "--sample-rate", "1/0", *RUN[2:]), "write the quotient as a decimal number"),
    (("measure", "--sample-rate", "3/2", *RUN[2:]), "1.5"),
    (("measure", *RUN, "--delta", "10^-5"), "write a power of ten as 1e-5"),
    (("measure", *RUN, "--delta", "1e-3%"), "write a percentage as a part of one"),
    (("measure", *RUN[:4], "--noise-multiplier", "\u22121"), "write the minus sign as -"),
    (("measure", *RUN, "--delta", "-1e-5"), "got --delta -1e-5."),
    (("measure", *SIZES, "--epochs", "-3", "--noise-multiplier", "1"), "Expected --epochs in (0, "),
    (("measure", "--dataset-size", "10", "--batch-size", "1000", *RUN[2:]), "--batch-size <= --dataset-size"),
    (("measure", *RUN, "--sampler", "poison"), "Did you mean poisson?"),
    (("measure", *RUN, "--sampler", "balls_and_bins"), "Did you mean balls-and-bins?"),
    (("measure", *RUN, "--adjacency", "addremov"), "Did you mean add-remove?"),
    (("audit", "builtin", "phases.toml"), "Did you mean --run phases.toml?"),
    (("measure", "--run", "binary.toml"), "binary.toml is not a text file in UTF-8"),
    (("measure", "--run", "empty.toml"), "empty.toml: A run needs noise_multiplier"),
    (("measure", "--run", "comma.toml"), "comma.toml is not valid TOML"),
    (("check", "binary.toml", "--epsilon", "3", "--delta", "1e-5"), "binary.toml is not a text file"),
    (("check", "phases.toml", "--epsilon", "1e-5", "--delta", "3"), "Expected the budget's delta in"),
    (("certify", ".", "--delta", "1e-5"), "Is a directory"),
    (("receipt", "binary.toml"), "binary.toml is not a text file"),
    (("verify-receipt", "empty.toml"), "empty.toml is not JSON"),
    (("audit", "absent.csv", "--claim", "2,1e-5"), "Cannot read absent.csv: No such file"),
    (("export", "phases.toml", "--form", "registry", "--about", "absent.toml"), "file for --about absent.toml"),
]


@pytest.mark.parametrize(("arguments", "said"), ELSEWHERE, ids=[" ".join(words)[:60] for words, _ in ELSEWHERE])
def test_one_sentence_for_what_is_written_otherwise_elsewhere(refused, desk, arguments, said):
    """And it says how it is written here."""
    before = {path.name: path.read_bytes() for path in desk.iterdir()}
    assert said in refused(*arguments)
    assert {path.name: path.read_bytes() for path in desk.iterdir()} == before
