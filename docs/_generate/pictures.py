"""Pictures of the terminal, a notebook, a report and the explorer at three widths, in a real Chromium.

    python docs/_generate/pictures.py FOLDER           every picture at every width, to be looked at
    python docs/_generate/pictures.py --documentation  those of the first page, in docs/_static

It needs the extra explorer, the group browser, and Chromium with its driver.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from calipers.measure import Measurement

STATIC = Path(__file__).parents[1] / "_static"
WIDTHS = (380, 800, 1440)
RUN = {"dataset_size": 10_005, "batch_size": 100, "epochs": 10, "noise_multiplier": 1, "sampler": "shuffle"}
RUN |= {"last_batch": "drop"}
OTHER = {key: value for key, value in RUN.items() if key != "last_batch"} | {"sampler": "poisson"}
PATIENCE = 300.0
STATE = "return document.documentElement.dataset.state ?? (location.protocol === 'file:' ? 'ready' : 'loading')"
Address = Callable[[int], str]
"""Where a page of a width is found."""


def options(run: dict[str, object]) -> list[str]:
    """The run as typed."""
    return [word for key, value in run.items() for word in (f"--{key.replace('_', '-')}", str(value))]


def calipers(*arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "calipers", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def browser(profile: str) -> object:
    """Chromium without a window."""
    from selenium import webdriver

    chosen = webdriver.ChromeOptions()
    chosen.binary_location = shutil.which("chromium") or ""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
    for flag in (*flags, f"--user-data-dir={profile}"):
        chosen.add_argument(flag)
    return webdriver.Chrome(options=chosen, service=webdriver.ChromeService(shutil.which("chromedriver")))


def pages(folder: Path) -> dict[str, Address]:
    """Addresses of a terminal's text, a notebook's cells and two reports, for every width."""
    import calipers as cp

    report, compared, cells = (folder / f"{name}.html" for name in ("report", "compare", "notebook"))
    calipers("measure", *options(RUN), "--report", str(report))
    files = []
    for name, run in (("shuffled", RUN), ("poisson", OTHER)):
        files.append(f"{name}={folder / name}.toml")
        (folder / f"{name}.toml").write_text(cp.Run.from_dict(run).to_toml(), "utf-8")
    calipers("compare", *files, "--report", str(compared))
    frame = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><body>'
    printed = terminals(cp.measure(cp.Run.from_dict(RUN)))
    for width, text in printed.items():
        page = f"{frame}<pre style='font: 13px monospace'>{html.escape(text)}</pre>"
        (folder / f"terminal-{width}.html").write_text(page, "utf-8")
    run = cp.Run.from_dict(OTHER)
    measured = cp.measure(run)
    shown = (run, measured, measured.epsilon(delta=1e-5))
    cells.write_text(frame + "<hr>".join(one._repr_html_() for one in shown), "utf-8")
    same = {path.stem: lambda _, path=path: path.as_uri() for path in (report, compared, cells)}
    return {**same, "terminal": lambda width: (folder / f"terminal-{width}.html").as_uri()}


def terminals(measurement: Measurement) -> dict[int, str]:
    """What terminals of these widths show, at eight points for a character."""
    from calipers.reports.answers import Questions, answer
    from calipers.reports.report import brief_measurement
    from calipers.reports.terminal import to_text

    document = brief_measurement(answer(measurement, Questions()), measurement.tolerance)
    found = {}
    for width in WIDTHS:
        os.environ.update(COLUMNS=str((width - 16) // 8), NO_COLOR="1")
        found[width] = to_text(document, terminal=True)
    return found


def printed() -> dict[str, dict[str, str]]:
    """The sentences with numbers that the pictures of the documentation show, kept beside them for a test."""
    import calipers as cp
    from calipers.reports.answers import Questions, answer
    from calipers.reports.paragraph import report_this
    from calipers.reports.standing import verdict

    found = {}
    for name, run in (("shuffled", RUN), ("Poisson", OTHER)):
        measurement = cp.measure(cp.Run.from_dict(run))
        answers = answer(measurement, Questions())
        found[name] = {"verdict": verdict(answers, measurement.tolerance), "report_this": report_this(answers)}
    return found


def taken() -> dict[str, dict[str, str]]:
    """Which pictures these numbers belong to."""
    return {
        "sha256": {n: hashlib.sha256((STATIC / n).read_bytes()).hexdigest() for n in ("report.png", "explorer.png")}
    }


def explored(port: int) -> str:
    """The explorer with both runs on it."""
    words = {f"{letter}.{key}": value for letter, run in (("a", RUN), ("b", OTHER)) for key, value in run.items()}
    return f"http://127.0.0.1:{port}/#{urlencode({**words, 'a.name': 'shuffled', 'b.name': 'Poisson'})}"


def take(driver: object, address: str, width: int, height: int | None, path: Path) -> None:
    """One picture; without a height, of the whole page."""
    driver.get("about:blank")  # type: ignore[attr-defined]
    size = {"width": width, "height": height or 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)  # type: ignore[attr-defined]
    driver.get(address)  # type: ignore[attr-defined]
    until = time.monotonic() + PATIENCE
    while driver.execute_script(STATE) != "ready":  # type: ignore[attr-defined]
        assert time.monotonic() < until, f"{address} is not ready"
        time.sleep(0.2)
    time.sleep(1.0)
    if height is None:
        whole = driver.execute_script("return document.documentElement.scrollHeight")  # type: ignore[attr-defined]
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "height": whole})  # type: ignore[attr-defined]
        time.sleep(0.3)
    driver.save_screenshot(str(path))  # type: ignore[attr-defined]


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--documentation", action="store_true")
    asked = parser.parse_args()
    command = [sys.executable, "-m", "calipers", "explore", "--no-browser", "--time-limit", "600"]
    with tempfile.TemporaryDirectory() as place, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        driver = browser(f"{place}/profile")
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", server.stdout.readline())
            assert found
            addresses = {**pages(Path(place)), "explorer": lambda _: explored(int(found[1]))}
            if asked.documentation:
                take(driver, addresses["report"](900), 900, 720, STATIC / "report.png")
                take(driver, addresses["explorer"](1280), 1280, 960, STATIC / "explorer.png")
                (STATIC / "pictures.json").write_text(json.dumps(printed() | taken(), indent=2) + "\n", "utf-8")
            if asked.folder is not None:
                asked.folder.mkdir(parents=True, exist_ok=True)
                for name, address in addresses.items():
                    for width in WIDTHS:
                        take(driver, address(width), width, None, asked.folder / f"{name}-{width}.png")
        finally:
            driver.quit()  # type: ignore[attr-defined]
            server.terminate()


if __name__ == "__main__":
    main()
