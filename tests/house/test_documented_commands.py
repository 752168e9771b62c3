"""The commands in README.md, CONTRIBUTING.md, docs and the Makefile exist, options included."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from calipers import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])


def shell_lines(markdown: str) -> list[str]:
    """The command lines of ```bash, ```sh, ```shell and ```console blocks, continuations joined, prompts removed."""
    blocks = re.findall(r"^\s*```(bash|sh|shell|console)[^\n]*\n(.*?)^\s*```", markdown, flags=re.M | re.S)
    lines = []
    for language, block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            line = line.strip()
            if language == "console":
                if not line.startswith("$ "):
                    continue
                line = line[2:]
            if line and not line.startswith("#"):
                lines.append(line)
    return lines


def words(line: str) -> list[str]:
    """The words of the first command of a line, comments and redirections left out."""
    found: list[str] = []
    for word in shlex.split(line, comments=True):
        if word in {"|", "||", "&&", ";", ">", ">>", "<"}:
            break
        found.append(word)
    return found


def command_complaints(arguments: list[str], group: click.Command) -> list[str]:
    """What is wrong with `calipers ARGUMENTS`: an unknown subcommand or an unknown option."""
    context = click.Context(group)
    command = group
    if isinstance(group, click.Group) and arguments and not arguments[0].startswith("-"):
        found = group.get_command(context, arguments[0])
        if found is None:
            return [f"no subcommand {arguments[0]!r}"]
        command, arguments = found, arguments[1:]
        context = click.Context(command)
    known = {
        option for parameter in command.get_params(context) for option in (*parameter.opts, *parameter.secondary_opts)
    }
    if getattr(command, "ignore_unknown_options", False) or command.context_settings.get("ignore_unknown_options"):
        return []
    written = [argument.split("=")[0] for argument in arguments if argument.startswith("--") and argument != "--"]
    return [f"no option {option!r}" for option in written if option not in known]


def complaints(line: str, group: click.Command, targets: set[str]) -> list[str]:
    """What is wrong with one documented command line; other programs are not our business."""
    parts = words(line)
    if parts[:3] == ["python", "-m", "calipers"]:
        parts = ["calipers", *parts[3:]]
    if not parts:
        return []
    if parts[0].endswith("calipers"):
        return command_complaints(parts[1:], group)
    if parts[0] == "make":
        named = [part for part in parts[1:] if "=" not in part and not part.startswith("-")]
        return [f"no target {name!r}" for name in named if name not in targets]
    if parts[0].startswith((".ci/", "./")) and not (ROOT / parts[0]).exists():
        return [f"no file {parts[0]!r}"]
    return []


def make_targets() -> set[str]:
    """The named targets of the Makefile."""
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), flags=re.M))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_commands_exist(page: Path) -> None:
    """Every `calipers` line names a real subcommand and real options, every `make` line a real target."""
    assert isinstance(cli.main, click.Group)
    found = {}
    for line in shell_lines(page.read_text("utf-8")):
        if wrong := complaints(line, cli.main, make_targets()):
            found[line] = wrong
    assert found == {}


def test_makefile_calls_real_commands() -> None:
    """The recipes of the Makefile call `calipers` with subcommands and options that exist."""
    recipes = re.findall(r"^\t@?\$\(BIN\)/(calipers .*)$", (ROOT / "Makefile").read_text("utf-8"), flags=re.M)
    assert recipes
    assert {line: wrong for line in recipes if (wrong := complaints(line, cli.main, set()))} == {}


def test_readme_shows_commands() -> None:
    """The README has at least one command to check."""
    assert shell_lines((ROOT / "README.md").read_text("utf-8"))


@pytest.mark.parametrize(
    "line",
    ["calipers meassure --run a.toml", "calipers measure --no-such-option 1", "make nothing-of-the-kind", ".ci/absent"],
)
def test_a_wrong_line_is_found(line: str) -> None:
    """The check rejects a misspelt subcommand, option, target and script."""
    assert complaints(line, cli.main, make_targets())


def test_examples_are_toml() -> None:
    """Every example parses, and there is the one that `make run` measures."""
    paths = sorted((ROOT / "examples").glob("*.toml"))
    assert ROOT / "examples" / "mnist.toml" in paths
    for path in paths:
        assert tomllib.loads(path.read_text("utf-8"))
