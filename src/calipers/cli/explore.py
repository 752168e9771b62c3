"""`calipers explore`: a local page on which runs are changed and compared."""

from __future__ import annotations

import click

from calipers.cli.kinds import COUNT, REAL, option
from calipers.domains import Domain

TIME_LIMIT = Domain(0.0, 86_400.0, low_open=True)


@click.command("explore", short_help="Open a local page to change and compare runs.")
@click.argument("address", required=False, metavar="[ADDRESS]")
@option("--port", COUNT, "Port to serve the page on.", default=0, show_default="a free one")
@option("--browser/--no-browser", None, "Open the page in the browser.", default=True)
@option("--time-limit", REAL, "Give up a measurement that takes longer.", metavar="SECONDS", default=120.0)
def explore_command(address: str | None, port: int, browser: bool, time_limit: float) -> None:
    """Open a local page: change any field of a run, see the bracket move, compare up to four runs.

    ADDRESS is one that somebody copied from the page: it describes the runs to begin with. Only
    what follows its "#" is used.

    The page is served to this machine only and loads nothing from elsewhere. Its JSON interface
    takes the options of `calipers measure` and answers with what `measure --json` prints; the page
    /api describes it. End it with Ctrl+C.

    \b
    Examples:
      calipers explore
      calipers explore --port 8000 --no-browser
      calipers explore 'http://127.0.0.1:8000/#a.sample_rate=0.01&a.steps=100&a.noise_multiplier=1'
    """
    seconds = TIME_LIMIT.check("time_limit", time_limit)
    from calipers.explorer.server import serve, shared_state
    from calipers.explorer.workers import Limits

    serve(
        port=port,
        state=shared_state(address),
        browser=browser,
        limits=Limits(seconds=seconds),
        announce=lambda found: click.echo(f"Calipers explorer at {found}   (Ctrl+C ends it)"),
    )
