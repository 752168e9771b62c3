"""`calipers check` and `--fail-on` as a script sees them: files, exit statuses, machine-readable output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from calipers.cli import main
from calipers.gate import Outcome
from calipers.gate.machine import github_commands, junit
from calipers.gate.sources import read_described
from calipers.provenance import digest, is_intact

PRIVATE = "sample_rate = 0.01\nsteps = 100\nnoise_multiplier = 2.0\n"
SHUFFLED = "dataset_size = 100\nbatch_size = 10\nepochs = 1\nnoise_multiplier = 1.0\nsampler = 'shuffle'\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private.toml").write_text(PRIVATE)
    (tmp_path / "shuffled.toml").write_text(SHUFFLED)
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


BUDGET = ("--epsilon", "1", "--delta", "1e-5")


@pytest.mark.parametrize(
    ("files", "status"),
    [(("private.toml",), 0), (("shuffled.toml",), 4), (("private.toml", "shuffled.toml"), 4)],
)
def test_exit_statuses(files, status, folder) -> None:
    """0 by a proof, 4 by an attack, and the gravest of several."""
    result = run("check", *files, *BUDGET)
    assert result.exit_code == status, result.output
    assert len(result.stdout.splitlines()) == len(files)


def test_an_uncertified_run_is_status_1_and_printed_like_the_others(folder) -> None:
    """What the help says: outcomes go to standard output, also that nothing is proven; `measure` ends with 2."""
    unproven = SHUFFLED + "last_batch = 'keep'\nnormalization = 'realized'\ndimension = 10\n"
    (folder / "unproven.toml").write_text(unproven.replace("= 100\n", "= 105\n", 1))
    result = run("check", "unproven.toml", "private.toml", *BUDGET)
    assert (result.exit_code, result.stderr) == (1, "")
    assert [line.split(": ")[1].split(" of ")[0] for line in result.stdout.splitlines()] == [
        "Nothing is proven",
        "Within the budget",
    ]
    measured = run("measure", "unproven.toml")
    assert (measured.exit_code, measured.stdout) == (2, "")


@pytest.mark.parametrize("text", ["action.yml", "README.md", "docs/howto/gate.md", ""])
def test_every_status_of_the_gate_is_named_wherever_they_are_listed(text) -> None:
    """Those of the outcomes, bad input, and a defect; without a file the help."""
    said = (Path(__file__).parents[2] / text).read_text("utf-8") if text else run("check", "--help").output
    statuses = {str(status) for status in (*(outcome.exit_status for outcome in Outcome), 2, 70)}
    listed = re.search(r"[Ee]xit status.*?70|0 within the budget;.*?70", said, flags=re.S)
    assert listed
    assert statuses == set(re.findall(r"(?<![\w.=-])(?:0|1|2|3|4|70)(?![\w.-])", listed[0]))


@pytest.mark.parametrize("name", ["--help", "-h", "--epsilon=1000", "--github", "--"])
def test_behind_dashes_every_word_is_a_file(name, folder) -> None:
    """A file that is called like an option is checked, and an option there is a file that is missing."""
    assert run("check", *BUDGET, "--", "private.toml", name).exit_code == 2
    (folder / name).write_text(SHUFFLED)
    result = run("check", *BUDGET, "--", "private.toml", name)
    assert result.exit_code == 4, result.output
    assert result.stdout.splitlines()[1].startswith(f"{name}: The budget of epsilon = 1 at delta = 1e-5 is exceeded")


def test_a_budget_between_the_jaws_is_status_3(folder) -> None:
    """Where neither proof nor attack decides, the gate stays shut."""
    row = json.loads(run("measure", "--run", "shuffled.toml", "--json").stdout)["epsilon"][0]
    assert row["lower"] < row["upper"]
    between = (row["lower"] + row["upper"]) / 2  # by the very bracket that `check` sees first
    result = run("check", "shuffled.toml", "--epsilon", repr(between), "--delta", "1e-5")
    assert result.exit_code == 3, result.output


@pytest.mark.parametrize("table", ["[calipers]", "[tool.calipers]"])
def test_the_budget_of_a_project(table, folder) -> None:
    """pyproject.toml says budget and files; found from a folder inside the project; options override it."""
    (folder / "pyproject.toml").write_text(f"{table}\nepsilon = 1\ndelta = 1e-5\nruns = ['private.toml']\n")
    assert run("check").exit_code == 0
    assert run("check", "shuffled.toml").exit_code == 4
    assert run("check", "--epsilon", "0.0001").exit_code == 4


@pytest.mark.parametrize("table", ["calipers", "tool.calipers"])
def test_a_refused_key_stands_in_the_table_that_was_written(table, folder) -> None:
    """The table is named as pyproject.toml has it."""
    (folder / "pyproject.toml").write_text(f"[{table}]\nepsilon = 1\ndelta = 1e-5\ncolour = 'red'\n")
    result = run("check", "private.toml")
    assert result.exit_code == 2
    assert f"pyproject.toml: [{table}]: Unknown key 'colour'" in " ".join(result.stderr.split())


def test_a_project_is_found_from_a_folder_inside_it(folder, monkeypatch) -> None:
    """The nearest pyproject.toml upwards that has our table; one without it is passed over."""
    (folder / "pyproject.toml").write_text("[tool.calipers]\nepsilon = 1\ndelta = 1e-5\nruns = ['private.toml']\n")
    inner = folder / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    monkeypatch.chdir(inner)
    assert run("check").exit_code == 0


def test_the_budget_of_a_run_file(folder) -> None:
    """[calipers] in a run file is its budget, and no key of the run to any other command."""
    (folder / "own.toml").write_text(PRIVATE + "[calipers]\nepsilon = 0.001\ndelta = 1e-5\n")
    assert run("check", "own.toml").exit_code == 4
    assert run("check", "own.toml", "--epsilon", "5").exit_code == 0
    assert run("measure", "--run", "own.toml").exit_code == 0


def test_two_tables_contradict_each_other(folder) -> None:
    """Which budget is meant is not for Calipers to guess."""
    (folder / "pyproject.toml").write_text("[calipers]\nepsilon = 1\n[tool.calipers]\nepsilon = 2\n")
    result = run("check", "private.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "contradict" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("private.toml",), "--epsilon and --delta"),
        (("private.toml", "--epsilon", "1"), "--delta"),
        ((), "Nothing to check"),
        (("absent.toml", *BUDGET), "absent.toml"),
        (("wrong.toml", *BUDGET), "wrong.toml"),
        (("typo.toml", *BUDGET), "epsilon"),
        (("list.json", *BUDGET), "no JSON object"),
        (("empty.json", *BUDGET), "holds no run"),
        (("private.toml", *BUDGET, "--json", "--github"), "--github"),
        (("private.toml", *BUDGET, "--junit", "nowhere/x.xml"), "nowhere"),
        (("isolated.toml", *BUDGET), "isolated"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, said, folder) -> None:
    """Nothing on standard output, nothing measured, nothing written."""
    (folder / "wrong.toml").write_text("sample_rate = \n")
    (folder / "typo.toml").write_text(PRIVATE + "[calipers]\nepsilom = 1\n")
    (folder / "list.json").write_text("[]")
    (folder / "empty.json").write_text("{}")
    (folder / "isolated.toml").write_text(PRIVATE + "view = 'isolated'\n")
    result = run("check", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


ISOLATED = PRIVATE + "view = 'isolated'\n[calipers]\nview = 'isolated'\n"
OWN_BUDGET = "epsilon = 1\ndelta = 1e-5\n"


@pytest.mark.parametrize("own", ["", OWN_BUDGET], ids=["view alone", "a whole budget"])
@pytest.mark.parametrize("project", ["", "[tool.calipers]\nepsilon = 1\ndelta = 1e-5\nview = 'worst-case'\n"])
def test_a_run_file_cannot_weaken_the_view_of_a_budget_given_elsewhere(project, own, folder) -> None:
    """A pull request that writes view = "isolated" twice into its run file is refused, whoever gives the budget."""
    (folder / "run.toml").write_text(ISOLATED + own)
    (folder / "pyproject.toml").write_text(project)
    result = run("check", "run.toml", *(() if project else BUDGET))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "run.toml: [calipers] says view = 'isolated', but the budget is given elsewhere" in result.stderr


def test_a_run_file_cannot_change_the_neighbors_of_a_budget_given_elsewhere(folder) -> None:
    (folder / "run.toml").write_text(PRIVATE + "adjacency = 'zero-out'\n[calipers]\nadjacency = 'zero-out'\n")
    (folder / "pyproject.toml").write_text("[tool.calipers]\nepsilon = 1\ndelta = 1e-5\nadjacency = 'add-remove'\n")
    result = run("check", "run.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "says adjacency = 'zero-out'" in result.stderr


@pytest.mark.parametrize(
    ("project", "own"),
    [("", OWN_BUDGET), ("[tool.calipers]\nepsilon = 1\ndelta = 1e-5\nview = 'isolated'\n", "")],
    ids=["its own budget", "the project's"],
)
def test_the_isolated_view_is_for_whoever_gives_the_budget(project, own, folder) -> None:
    """And the sentence says that it is no differential privacy."""
    (folder / "run.toml").write_text(ISOLATED + own)
    (folder / "pyproject.toml").write_text(project)
    result = run("check", "run.toml")
    assert result.exit_code == 0, result.output
    assert "This is not differential privacy" in result.stdout


def test_json_is_sealed_and_says_everything(folder) -> None:
    """Every run with its outcome; version, date and command; a hash that a changed byte breaks."""
    record = json.loads(run("check", "private.toml", "shuffled.toml", *BUDGET, "--json").stdout)
    assert [one["outcome"] for one in record["runs"]] == ["within", "exceeded"]
    assert record["exit_status"] == 4
    assert record["provenance"]["command"].startswith("calipers check private.toml")
    assert is_intact(record)
    record["runs"][1]["outcome"] = "within"
    assert not is_intact(record)


def test_junit_counts_what_failed(folder) -> None:
    """One case a run, a failure where the budget is not kept; XML that parses whatever a file is called."""
    result = run("check", "private.toml", "shuffled.toml", *BUDGET, "--junit", "out.xml")
    assert result.exit_code == 4
    suite = ElementTree.parse("out.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert [case.get("name") for case in suite] == ["private.toml", "shuffled.toml"]
    assert [len(case.findall("failure")) for case in suite] == [0, 1]


@pytest.mark.parametrize(
    "command",
    [
        ("check", "gaussian.toml", "--epsilon", "9", "--delta", "1e-5", "--junit"),
        ("export", "gaussian.toml", "--form", "checklist", "-o"),
        ("receipt", "gaussian.toml", "-o"),
    ],
    ids=lambda command: command[0],
)
def test_files_are_replaced_as_the_refusal_says(command, folder) -> None:
    """Its own file a command writes again; somebody else's with the option that the refusal names."""
    (folder / "gaussian.toml").write_text("sample_rate = 1.0\nsteps = 1\nnoise_multiplier = 2.0\n")
    assert [run(*command, "own").exit_code for _ in range(2)] == [0, 0]
    (folder / "thesis").write_text("all of it\n")
    result = run(*command, "thesis")
    assert (result.exit_code, "say --overwrite" in result.stderr) == (2, True)
    assert (folder / "thesis").read_text() == "all of it\n"
    assert run(*command, "thesis", "--overwrite").exit_code == 0


def test_odd_names_break_neither_xml_nor_annotations(folder) -> None:
    """A control character in a name becomes an escape, a colon or a comma does not end a property."""
    from calipers.gate import Budget, check

    odd = "a:b,c\n\x01<&\ufffe.toml"
    found = [check(read_described("private.toml").runs, Budget(epsilon=1, delta=1e-5), name=odd)]
    assert ElementTree.fromstring(junit(found, "2026-01-01T00:00:00Z")).find(".//testcase") is not None
    line = github_commands(found)
    assert line.count("\n") == 1
    assert line.startswith("::notice file=a%3Ab%2Cc%0A")


def test_github_shows_an_error_beside_the_file(folder) -> None:
    """A workflow command that GitHub understands, and nothing else, on standard output."""
    result = run("check", "shuffled.toml", *BUDGET, "--github")
    assert result.exit_code == 4
    assert result.stdout.startswith("::error file=shuffled.toml,title=Privacy budget exceeded::")


def test_numbers_in_a_file_are_not_believed(folder) -> None:
    """What `measure --json` printed is measured again; a forged epsilon with a forged hash changes nothing."""
    printed = json.loads(run("measure", "--run", "shuffled.toml", "--json").stdout)
    printed["epsilon"][0] |= {"lower": 0.0, "upper": 0.1}
    about = {key: value for key, value in printed["provenance"].items() if key != "sha256"}
    printed["provenance"] = about | {"sha256": digest({**printed, "provenance": about})}
    Path("forged.json").write_text(json.dumps(printed))
    assert run("check", "forged.json", *BUDGET).exit_code == 4
    printed["epsilon"][0]["upper"] = 0.2
    Path("damaged.json").write_text(json.dumps(printed))
    result = run("check", "damaged.json", *BUDGET)
    assert result.exit_code == 2
    assert "hash" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("measure", "--run", "shuffled.toml", "--fail-on", "refuted"), 4),
        (("measure", "--run", "shuffled.toml", "--fail-on", "undecided"), 3),
        (("measure", "--run", "shuffled.toml", "--fail-on", "open", "--fail-on", "refuted"), 4),
        (("measure", "--run", "private.toml", "--fail-on", "refuted", "--fail-on", "undecided"), 0),
        (("measure", "--run", "private.toml", "--fail-on", "falsified"), 2),
        (("compare", "private.toml", "shuffled.toml", "--fail-on", "refuted"), 4),
        (("compare", "private.toml", "private.toml", "--fail-on", "refuted"), 0),
        (("audit", "builtin", "--fail-on", "refuted"), 2),
    ],
)
def test_fail_on(arguments, status, folder) -> None:
    """A condition that holds ends the command after it has printed; one that cannot happen is refused."""
    result = run(*arguments)
    assert result.exit_code == status, result.output
    assert bool(result.stdout) is (status != 2)


def test_nothing_is_refuted_of_other_neighbors(folder) -> None:
    """The claim is not about a substituted record: the condition is refused, whatever the numbers are."""
    result = run("measure", "--run", "shuffled.toml", "--adjacency", "substitute", "--fail-on", "refuted")
    assert (result.exit_code, "can never happen here" in result.stderr) == (2, True)


@pytest.mark.parametrize(("claim", "status"), [("0.01,1e-5", 4), ("50,1e-5", 0)])
def test_an_audit_fails_on_what_it_falsifies(claim, status, folder) -> None:
    """A false claim ends with 4, a true one with 0, and the report is printed in both cases."""
    played = ("--sample-rate", "1", "--steps", "1", "--noise-multiplier", "0.5", "--dataset-size", "5")
    result = run(
        "audit", "builtin", *played, "--seed", "1", "--trials", "300", "--claim", claim, "--fail-on", "falsified"
    )
    assert result.exit_code == status, result.output
    assert "trials for each hypothesis" in result.stdout


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (("--sample-rate", "0.01", "--steps", "10", "--noise-multiplier", "1", "--selected-mean", "10"), "selection"),
        (("--mu", "1"), "guarantee"),
    ],
)
def test_what_is_no_run_is_refused_with_what_to_do(options, kind, folder) -> None:
    """A selection that `measure --json` printed names no run that could be measured again."""
    (folder / "other.json").write_text(run("measure", *options, "--json").stdout)
    result = run("check", "other.json", *BUDGET)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"holds no run but '{kind}', which `calipers check` cannot measure again yet" in result.stderr
    assert "Unknown key" not in result.stderr


def test_what_a_run_file_leaves_out_is_said_to_be_assumed(folder) -> None:
    """A sampler and a divisor that nobody named; nothing where both are."""
    run_file = "sample_rate = 0.01\nsteps = 10\nnoise_multiplier = 2.0\n"
    (folder / "silent.toml").write_text(run_file)
    whose = "adjacency = 'add-remove'\nview = 'worst-case'\nunit = 'user'\nrecords_per_unit = 1\n"
    (folder / "named.toml").write_text(run_file + "sampler = 'poisson'\nnormalization = 'none'\n" + whose)
    silent, named = (run("check", name, *BUDGET) for name in ("silent.toml", "named.toml"))
    assert (silent.exit_code, named.exit_code) == (0, 0)
    assert "Assumed, because not given: sampler poisson, normalization none (the noisy sum" in silent.stdout
    assert "Assumed" not in named.stdout


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sampler = 'shuffle'\nepochs = 2\n", "Assumed, because not given: reshuffle every-epoch."),
        ("sampler = 'shuffle'\nepochs = 2\nreshuffle = 'once'\n", ""),
        ("sampler = 'shuffle'\nepochs = 1\n", "Assumed, because not given: reshuffle every-epoch."),
        (
            "sampler = 'poisson'\nepochs = 2\n",
            "the rate (batch size / number of records) taken as the same for both neighbors.",
        ),
        ("sampler = 'poisson'\nepochs = 2\nderived_rate = 'public'\n", ""),
    ],
)
def test_the_order_and_the_rate_are_said_to_be_assumed(given, said, folder) -> None:
    """One order for all epochs, and a rate that moves, have a larger epsilon."""
    fixed = "dataset_size = 105\nbatch_size = 10\nnoise_multiplier = 9.0\nnormalization = 'none'\nlast_batch = 'drop'\n"
    fixed += "adjacency = 'add-remove'\nview = 'worst-case'\nunit = 'user'\nrecords_per_unit = 1\n"
    if "poisson" in given:
        fixed = fixed.replace("= 105", "= 100")
    (folder / "run.toml").write_text(
        (fixed if "shuffle" in given else fixed.replace("last_batch = 'drop'\n", "")) + given
    )
    result = run("check", "run.toml", "--epsilon", "9", "--delta", "1e-5")
    assert result.exit_code == 0, result.output
    assert said in result.stdout
    assert ("Assumed" in result.stdout) is bool(said)
