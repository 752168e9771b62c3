"""`calipers reproduce`: the tables and figures of the papers, computed again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calipers.cli.kinds import one_of, option
from calipers.cli.options import show
from calipers.cli.patience import counting
from calipers.errors import CalipersError, CertificationError, InputError

if TYPE_CHECKING:
    from calipers.papers.items import Item, Row
    from calipers.papers.storage import Result
    from calipers.reports.document import Document


def _names() -> list[str]:
    from calipers.papers import registry

    return [item.name for item in registry.list_items()]


@click.command("reproduce", short_help="Compute published tables and figures again.")
@click.argument("items", nargs=-1, metavar="[ITEM]...", shell_complete=one_of(_names))
@option("--list", bool, "List the items.", called="list_items")
@option("--coverage", bool, "List every numbered statement, table and figure with its verdict.")
@option("--all", bool, "Reproduce every item.", called="everything")
@option("--output", None, "Folder to write to.", default="reproduced", metavar="DIR")
@option("--resume", bool, "Keep what is already finished in the folder.")
def reproduce_command(
    items: tuple[str, ...], list_items: bool, coverage: bool, everything: bool, output: str, resume: bool
) -> None:
    """Compute published tables and figures again, next to the published numbers.

    Each item prints a table: what the paper prints, the bracket Calipers computes, their
    difference, and whether they agree at the printed digits. Tables go to CSV, figures to PNG and
    SVG, each with its data as CSV. Every file appears whole or not at all, and an item's JSON file
    comes last: with --resume, items that have one are read instead of computed.

    --coverage lists what stands in the papers and what became of it: implemented or reproduced (and by
    what), false as printed, or not computable, and why.

    \b
    Examples:
      calipers reproduce --list
      calipers reproduce --coverage
      calipers reproduce gomez2025-table-3 gomez2025-headline
      calipers reproduce --all --output reproduced --resume
    """
    if bool(items) + list_items + coverage + everything != 1:
        raise InputError("Give exactly one of: names of items, --list, --coverage, --all.")
    if (list_items or coverage) and resume:
        raise InputError(f"--resume is about computing; leave it out with {'--list' if list_items else '--coverage'}.")
    from calipers.papers import registry

    if coverage:
        click.echo(coverage_listing(), nl=False)
        return
    if list_items:
        click.echo(listing(registry.list_items()), nl=False)
        return
    wanted = list(registry.list_items()) if everything else [registry.find_item(name) for name in dict.fromkeys(items)]
    Path(output).mkdir(parents=True, exist_ok=True)  # now, and not after the minutes that an item may take
    failures = []
    for number, item in enumerate(wanted, start=1):
        try:
            _one(item, Path(output), resume, f"{number}/{len(wanted)}")
        except CalipersError as error:
            # The other items do not depend on this one; the exit status remembers it.
            failures.append(item.name)
            click.echo(f"{item.name} failed: {error}", err=True)
        except KeyboardInterrupt:
            click.echo(f"Stopped in {item.name}. What is finished stays in {output}; go on with --resume.", err=True)
            raise
    if failures:
        raise CertificationError(f"Not reproduced: {', '.join(failures)} ({len(failures)} of {len(wanted)}).")


def _one(item: Item, folder: Path, resume: bool, place: str) -> None:
    """Compute (or read) one item and print its table."""
    from calipers.papers import registry

    if resume and registry.finished(item.name, folder):
        click.echo(f"[{place}] {item.name}: already finished", err=True)
    else:
        label = f"[{place}] {item.name}"
        if not sys.stderr.isatty():
            click.echo(label, err=True)
        with counting(label) as progress:
            registry.reproduce(item.name, folder, progress)
    show(item_report(item, registry.load(item.name, folder)))
    click.echo()


def listing(items: tuple[Item, ...]) -> str:
    """One line per item: name, place in the paper, cost, title."""
    width = max(len(item.name) for item in items)
    return "".join(f"{item.name:<{width}}  {item.cost:<5}  {item.place}: {item.title}\n" for item in items)


def coverage_listing() -> str:
    """Per paper: place, verdict and what stands there, then what computes it and the reason, indented."""
    from calipers.papers.coverage import by_paper, how_to_run

    lines: list[str] = []
    for rows in by_paper().values():
        lines += [str(rows[0].source), ""]
        place, verdict = max(len(row.place) for row in rows), max(len(row.verdict.value) for row in rows)
        for row in rows:
            lines.append(f"  {row.place:<{place}}  {row.verdict.value:<{verdict}}  {row.says}")
            details = [*(how_to_run(name) for name in row.by), *([row.why] if row.why else [])]
            lines += (f"  {'':<{place}}    {detail}" for detail in details)
        lines.append("")
    return "\n".join(lines)


def item_report(item: Item, result: Result) -> Document:
    """Title, comparison table, remarks, files."""
    from calipers.citations import SOURCES
    from calipers.reports.document import Badge, Document, Items, Section, Table

    source = SOURCES[item.source]
    rows = tuple(
        (
            row.quantity,
            row.published.text if row.published is not None else "",
            ours(row),
            difference(row),
            Badge(row.verdict.value, "bad" if row.verdict.value == "differs" else ""),
        )
        for row in result.rows
    )
    files = "Files: " + ", ".join(str(path) for path in result.files)
    columns = ("quantity", "published", "ours", "difference", "verdict")
    return Document(
        kind="reproduce",
        title=item.name,
        verdict=f"{item.place} of {source.authors} ({source.year}): {item.title}",
        sections=(Section("", (Table("", columns, rows), Items((*result.remarks, files)))),),
    )


def ours(row: Row) -> str:
    """The bracket with its ends rounded outward; "≈" before an estimate; one number where both ends print alike."""
    from calipers.numerics.decimals import ceil_digits, floor_digits, nearest_digits

    if row.lower == row.upper or row.basis == "closed form":
        text = nearest_digits(row.upper)
    else:
        text = f"{floor_digits(row.lower)} to {ceil_digits(row.upper)}"
    return f"≈ {text}" if row.basis == "estimate" else text


def difference(row: Row) -> str:
    """The signed difference to two digits, or nothing where there is none."""
    from calipers.numerics.decimals import nearest_digits

    if row.difference is None:
        return ""
    return ("" if row.difference < 0 else "+") + nearest_digits(row.difference, 2)
