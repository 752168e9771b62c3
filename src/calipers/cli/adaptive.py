"""`calipers calibrate menu.toml`: the budget of an adaptive run, and costs where the file gives none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calipers.cli.outlet import Outlet
from calipers.cli.patience import patience
from calipers.cli.subjects import MenuFile
from calipers.errors import InputError

if TYPE_CHECKING:
    from calipers.adaptive import AdaptiveRun
    from calipers.adaptive.rules import FilterRule
    from calipers.reports.document import Document
    from calipers.reports.report import Report


BLOCKS = (
    "Thousands of steps fit the target: each step of the menu above is a block of several, and is paid when its "
    "first is taken; the table counts single ones. Kinds may alternate step by step; a block that was begun stays paid."
)


def calibrate_menu(file: MenuFile, target: dict[str, float], tolerance: float, outlet: Outlet) -> None:
    """Find the largest budget whose upper bound over all policies meets epsilon at delta, and say it."""
    if set(target) != {"epsilon", "delta"}:
        raise InputError("The budget of a menu is calibrated to --epsilon with --delta; leave other targets out.")
    from calipers.adaptive.filter import run_of
    from calipers.adaptive.rules import calibrated_rule
    from calipers.adaptive.run import load_menu
    from calipers.adaptive.steps import step_pairs

    menu, costs, _ = load_menu(file.path)
    with patience("calibrating", logged=True) as say:
        pairs = tuple(step_pairs(name, step) for name, step in menu.items())
        rule = calibrated_rule(
            pairs,
            target["epsilon"],
            target["delta"],
            tuple(costs.values()),
            lambda done, most: say(f"calibrating: budget {done:,} of about {most:,}"),
        )
        run = run_of(menu, rule)
        assert run is not None  # a file describes runs and guarantees

    def record() -> str:
        from calipers.reports.records import to_document

        said: dict[str, object] = {"target": target, "rule": rule.to_dict(), "run_file": run.to_toml()}
        return to_document(said | {"shares": list(rule.shares)}, run.stated.to_dict())

    def report() -> Report:
        from calipers.measure import measure
        from calipers.reports.answers import Questions
        from calipers.reports.report import report_measurement

        return report_measurement(measure(run, tolerance=tolerance), Questions(deltas=(target["delta"],)))

    outlet.say(report, record, lambda: _document(run, rule, target))


def _document(run: AdaptiveRun, rule: FilterRule, target: dict[str, float]) -> Document:
    from calipers.adaptive.run import CONDITIONS, described_step
    from calipers.numerics.decimals import setting
    from calipers.reports.document import Badge, Code, Document, Items, Section, Table

    wanted = f"epsilon = {setting(target['epsilon'])} at delta = {setting(target['delta'])}"
    empty = (0,) * len(run.menu)
    rows = tuple(
        (
            name,
            described_step(step),
            str(run.costs[name]),
            str(rule.further(empty, place)),
            f"{100.0 * rule.shares[place]:.0f} % of about {rule.alone[place]}",
        )
        for place, (name, step) in enumerate(run.menu.items())
    )
    caption = "What one step costs, and how many of a kind alone fit, against a number fixed in advance"
    columns = ("step", "what it is", "cost", "at most", "share of a fixed schedule")
    return Document(
        kind="calibrate",
        title="Budget of an adaptive run",
        subject=run.stated.sentence,
        verdict=f"With a budget of {run.budget} units, steps chosen while training are proven to be within {wanted}.",
        badges=(Badge("target met by proof", "good"),),
        sections=(
            Section("The menu", (Table(caption, columns, rows),)),
            Section("The run, as a run file", (Code(run.to_toml()),)),
            Section(
                "Notes",
                (
                    Items(
                        (*CONDITIONS, *([BLOCKS] if rule.blocks else [])),
                    ),
                ),
            ),
        ),
    )
