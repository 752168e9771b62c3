"""The words of other libraries on the command line: understood where they mean the same, else answered precisely."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from calipers.cli import main
from calipers.synonyms import ADJACENCIES

RUN = ("--sample-rate", "1", "--steps", "4", "--noise-multiplier", "5")
FILE = "sample_rate = 1.0\nsteps = 4\nnoise_multiplier = 5.0\n"


def run_of(*arguments: str) -> object:
    """The run that a command says it measured."""
    done = CliRunner().invoke(main, ["measure", *arguments, "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["run"]


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 2
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize(
    ("adjacency", "name"),
    [(adjacency, name) for adjacency, names in ADJACENCIES.items() for name in names]
    + [("substitute", "REPLACE_ONE"), ("add-remove", "ADD_OR_REMOVE_ONE"), ("zero-out", "Replace_Special")],
)
def test_neighbors_are_understood_by_all_their_names(adjacency: str, name: str) -> None:
    """With hyphens or underscores, in letters of any size, as papers and dp_accounting write them."""
    assert run_of(*RUN, "--adjacency", name) == run_of(*RUN, "--adjacency", adjacency)


CLIPPING = "--noise-multiplier is the standard deviation of the noise divided by it"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("measure", *RUN, "--max-grad-norm", "1"), CLIPPING),
        (("measure", *RUN, "--clip", "1"), CLIPPING),
        (("measure", *RUN, "--l2_norm_clip", "1"), CLIPPING),
        (("compare", *RUN, "--clipping-norm", "1"), CLIPPING),
        (("train", "--clip", "1"), "Did you mean --max-grad-norm?"),
        (("probe", "opacus", "--clip", "1"), "Did you mean --max-grad-norm?"),
        (("measure", *RUN, "--lr", "0.1"), "(post-processing) does not change its privacy"),
        (("measure", *RUN, "--learning-rate", "0.1"), "(post-processing) does not change its privacy"),
        (("train", "--lr", "0.1"), "Did you mean --learning-rate?"),
        (("measure", *RUN, "--drop-last"), "Write --last-batch drop for drop_last=True"),
        (("measure", *RUN, "--target-epsilon", "3"), "found by `calipers calibrate`"),
        (("compare", *RUN, "--target-epsilon", "3"), "found by `calipers calibrate`"),
        (("calibrate", *RUN, "--target-epsilon", "3"), "Did you mean --epsilon?"),
        (("calibrate", *RUN, "--target-delta", "1e-5"), "Did you mean --delta?"),
        (("check", "run.toml", "--target-epsilon", "3"), "Did you mean --epsilon?"),
        (("measure", *RUN, "--sigma", "1"), "Did you mean --noise-multiplier?"),
        (("measure", *RUN, "--sampling-probability", "1"), "Did you mean --sample-rate?"),
        (("measure", *RUN, "--neighboring-relation", "1"), "Did you mean --adjacency?"),
        (("measure", *RUN, "--poisson-sampling"), "Write --sampler poisson"),
        (("measure", *RUN, "--beside", "3"), "Did you mean --additional-query?"),
        (
            ("measure", *RUN, "--normalization", "mean"),
            "--normalization realized, the records that the batch really has",
        ),
        (("measure", *RUN, "--normalization", "sum"), "Write --normalization none."),
        (("measure", *RUN, "--sampler", "shuffled"), "Write --sampler shuffle."),
        (("measure", *RUN, "--sampler", "balls_in_bins"), "Write --sampler balls-and-bins."),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, tuple) else "",
)
def test_a_name_from_elsewhere_is_answered_with_what_to_write(arguments: tuple[str, ...], said: str) -> None:
    """Never with an option that only looks alike: --clip is not --clip-count-noise, --lr is not --fpr."""
    message = refused(*arguments)
    assert said in message
    assert "--clip-count-noise" not in message
    assert "--fpr" not in message


READERS = {
    "measure": (),
    "calibrate": ("--mu", "0.5"),
    "curve": ("--profile", "--epsilon", "1"),
    "certify": ("--delta", "1e-5"),
    "compare": ("--noise-multiplier", "6"),
    "check": ("--epsilon", "3", "--delta", "1e-5"),
    "export": (),
    "receipt": (),
}
"""Every command that reads a run file as its own argument, and what else it needs."""


def names_of(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in (parameter.name or "", *parameter.opts)}


def test_all_commands_that_read_run_files_take_both() -> None:
    """RUN and --run; `audit`, whose argument is what it plays, has --run alone."""
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    having = {name for name, command in commands.items() if command and "--run" in names_of(command)}
    assert having == {*READERS, "audit"}
    assert all(names_of(commands[name]) & {"run_path", "files"} for name in READERS)


@pytest.mark.parametrize("command", sorted(set(READERS) - {"certify"}))
def test_a_run_file_is_named_in_either_way(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same outcome."""
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(FILE)
    first, second = (
        CliRunner().invoke(main, [command, *named, *READERS[command]])
        for named in (["run.toml"], ["--run", "run.toml"])
    )
    assert first.exit_code == second.exit_code == 0, first.stderr + second.stderr
    # The command that was typed, and when, are part of what is written down.
    plain = [re.sub(r"--run (?=run\.toml)|[\d-]+T[\d:]+Z", "", done.stdout) for done in (first, second)]
    if command == "receipt":
        plain = [json.dumps(json.loads(text)["executed"]) for text in plain]
    assert plain[0] == plain[1]
    assert plain[0]


@pytest.mark.parametrize("command", ["measure", "calibrate", "curve", "certify", "export", "receipt"])
def test_a_run_file_is_named_once(command: str) -> None:
    """Whichever counted, the other one might have been meant."""
    assert "give one of them" in refused(command, "a.toml", "--run", "b.toml", *READERS[command])


def test_options_replace_what_a_named_file_says(tmp_path: Path) -> None:
    """In either way of naming it."""
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    expected = run_of(*RUN[:4], "--noise-multiplier", "7")
    assert run_of(str(path), "--noise-multiplier", "7") == expected
    assert run_of("--run", str(path), "--noise-multiplier", "7") == expected
