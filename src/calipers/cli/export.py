"""`calipers export`: the guarantee in the forms that others ask for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from calipers.cli.kinds import REAL, option
from calipers.cli.options import (
    SAME_AS_RUN,
    check_place,
    overwrite_option,
    run_named,
    run_option,
    tolerance_option,
    write,
)
from calipers.cli.patience import patience
from calipers.errors import InputError

FORMS = ("short", "model-card", "checklist", "registry")


@click.command("export", short_help="Write the guarantee for a registry, a checklist or a model card.")
@click.argument("run_path", metavar="RUN", required=False)
@run_option(SAME_AS_RUN)
@option("--form", click.Choice(FORMS), "What to write; described above.", default="short")
@option("--delta", REAL, "The delta of the guarantee.", default=1e-5)
@option("--about", None, "A TOML file that says what Calipers cannot measure.", called="about_path", metavar="FILE")
@tolerance_option(1e-3)
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
@overwrite_option
def export_command(
    run_path: str | None,
    run_file: str | None,
    form: str,
    delta: float,
    about_path: str | None,
    tolerance: float,
    output: str | None,
) -> None:
    """Write what a run guarantees in a form that others ask for.

    RUN is a run file, a receipt, or what `calipers measure --json` printed; the run is measured again, and a
    receipt that contradicts its own run is refused.

    \b
      short       ten lines of Markdown
      model-card  a model card of Hugging Face: metadata and a section
      checklist   what NIST SP 800-226 asks, answered where a measurement answers it
      registry    an entry of the differential-privacy deployments registry (OpenDP, NIST), YAML

    The registry needs --about with name, data_curators, intended_use, data_product_region,
    description, publication_date and registry_authors; the checklist takes from it what it can use.

    \b
    Examples:
      calipers export run.toml
      calipers export run.receipt.json --form model-card -o README.md
      calipers export run.toml --form registry --about product.toml -o my_model.yaml
    """
    check_place(output)
    from calipers.disclosure import disclose, render
    from calipers.disclosure.registry_schema import file_name_complaints
    from calipers.errors import UnsupportedError
    from calipers.gate import read_described
    from calipers.measure import measure
    from calipers.run_keys import read_toml

    if form == "registry" and output is not None:
        for said in file_name_complaints(Path(output).name):
            raise InputError(said)
    name = run_named(run_path, run_file)
    if name is None:
        raise InputError("Expected a run: name a run file or a receipt.")
    described = read_described(name)
    if not described.runs:
        raise UnsupportedError(f"{name}: nothing is proven about this training, so there is nothing to disclose.")
    _refuse_contradiction(name, described.receipt)
    about: dict[str, Any] = {} if about_path is None else read_toml(about_path, "file for --about")
    if form in ("short", "model-card") and about:
        raise InputError(f"--form {form} has no place for --about; leave it out.")
    with patience("measuring"):
        found = disclose(
            measure(described.runs, tolerance=tolerance),
            deltas=[delta],
            how=described.how,
            attained=described.attained,
            assumed=described.assumed,
            conditions=described.in_its_words,
            about=about,
        )
        text = render(found, form)
    write(text, output)


def _refuse_contradiction(name: str, record: Mapping[str, Any] | None) -> None:
    """A receipt that contradicts its own run is no ground for a card."""
    from calipers.receipts.verify import Confirmation, verify_receipt

    if record is not None and (found := verify_receipt(record)).standing is Confirmation.CONTRADICTED:
        raise InputError(f"{name}: the receipt contradicts its own run: {found.wrong}")
