"""The reference of the command line, from the program's own help."""

from __future__ import annotations

import click

from calipers.cli import main

WIDTH = 88


def pages() -> dict[str, str]:
    """commands.md: the help of the program and of each of its commands, in the order in which it lists them."""
    assert isinstance(main, click.Group)
    settings = {**main.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    top = click.Context(main, info_name="calipers", **settings)
    parts = [
        "# Command line\n",
        "What `--help` prints, taken from the program when this page was built.\n",
        _fenced(main.get_help(top)),
    ]
    for name in main.list_commands(top):
        command = main.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top)
        parts += [f"## calipers {name}\n", _fenced(command.get_help(context))]
    return {"commands.md": "\n".join(parts)}


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"
