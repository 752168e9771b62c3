"""`calipers reproduce`: the tables and figures of the papers, computed again."""

from __future__ import annotations

from pathlib import Path

import click

from calipers.errors import InputError


@click.command("reproduce", short_help="Compute published tables and figures again.")
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@click.option("--list", "list_items", is_flag=True, help="List the items.")
@click.option("--all", "everything", is_flag=True, help="Reproduce every item.")
@click.option("--output", default="reproduced", show_default=True, metavar="DIR", help="Folder to write to.")
def reproduce_command(items: tuple[str, ...], list_items: bool, everything: bool, output: str) -> None:
    """Compute published tables and figures again, beside the published numbers.

    \b
    Examples:
      calipers reproduce --list
      calipers reproduce --all --output reproduced
    """
    if bool(items) + list_items + everything != 1:
        raise InputError("Give exactly one of: names of items, --list, --all.")
    from calipers.papers import registry

    known = {item.name: item for item in registry.list_items()}
    if list_items:
        for item in known.values():
            click.echo(f"{item.name}  {item.title}")
        return
    unknown = [name for name in items if name not in known]
    if unknown:
        raise InputError(f"No item is called {unknown[0]!r}; `calipers reproduce --list` shows the names.")
    for name in known if everything else items:
        for path in registry.reproduce(name, Path(output), lambda message: click.echo(message, err=True)):
            click.echo(path)
