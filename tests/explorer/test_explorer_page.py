"""The page in a real Chromium: load, change, compare, share, save, refuse, cancel, and nothing overlaps."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest

from calipers.phases import load_runs
from calipers.run import Run
from calipers.samplers import SAMPLERS, scheme_named

from .conftest import LONG, SMALL, Explorer, needs_fastapi

pytestmark = pytest.mark.explorer

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
PATIENCE = 60.0
# Pairs of texts in one picture whose boxes intersect, or that reach out of it.
OVERLAPS = """
const found = [];
for (const svg of document.querySelectorAll("#brackets svg, .plot svg")) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
  texts.forEach(([one, a], i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1) found.push([one, "outside"]);
    for (const [other, b] of texts.slice(i + 1))
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
        found.push([one, other]);
  });
}
return found;
"""


def address(explorer: Explorer, *runs: dict[str, object], **questions: object) -> str:
    """The page with these runs, as somebody would share it."""
    words = {f"{letter}.{key}": value for letter, run in zip("abcd", runs, strict=False) for key, value in run.items()}
    return f"http://127.0.0.1:{explorer.port}/#{urlencode({**words, **questions})}"


class Page:
    """What a person does with the page."""

    def __init__(self, driver, downloads: Path) -> None:
        self.driver, self.downloads = driver, downloads

    def open(self, where: str) -> None:
        # From a blank page: an address that differs after the "#" alone would not load anything.
        self.driver.get("about:blank")
        self.driver.get(where)
        self.settle()

    def settle(self, state: str = "ready") -> None:
        self.until(lambda: self.script("return document.documentElement.dataset.state") == state, state)

    def until(self, condition, what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited for: {what}\n{self.driver.get_log('browser')}"
            time.sleep(0.05)

    def script(self, text: str, *arguments: object):
        return self.driver.execute_script(text, *arguments)

    def all(self, selector: str):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def type(self, name: str, text: str, state: str = "ready") -> None:
        # The page is busy from the first key on, so no wait for other numbers: a changed field may leave them equal.
        box = self.one(f"input[name={name}]")
        box.clear()
        box.send_keys(text)
        self.settle(state)

    def choose(self, name: str, value: str) -> None:
        self.one(f"select[name={name}] option[value='{value}']").click()
        self.settle()

    def exact(self, kind: str = "epsilon") -> list[float]:
        # In one step: the table may be made anew between two.
        cells = f"document.querySelectorAll('#numbers tr[data-kind={kind}] [data-exact]')"
        return [float(text) for text in self.script(f"return [...{cells}].map((cell) => cell.dataset.exact)")]

    def saved(self, button: str, name: str) -> str:
        self.one(f"[{button}]").click()
        path = self.downloads / name
        self.until(lambda: path.exists() and path.stat().st_size > 0, f"download of {name}")
        return path.read_text("utf-8")


@pytest.fixture(scope="module")
def page_explorer():
    needs_fastapi()
    one = Explorer()
    yield one
    assert one.stop() == (0, "")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory):
    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError:
        webdriver = None
    if not (chromium and driver_path and webdriver):
        reason = (
            "needs chromium, chromedriver and selenium: apt-get install chromium chromium-driver; make test-explorer"
        )
        if os.environ.get("CALIPERS_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    downloads = tmp_path_factory.mktemp("downloads")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1280,1000"):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    yield Page(driver, downloads)
    driver.quit()


def test_the_page_loads_and_measures(page: Page, page_explorer: Explorer) -> None:
    """Opened as it is, it shows the bracket of its first run, with evidence and notes, and loads nothing else."""
    page.open(page_explorer.address)
    lower, upper, claim = page.exact()
    assert 2.3 < lower <= upper < 2.4
    assert claim >= lower
    assert len(page.all("#evidence li")) > 1
    assert len(page.all("#notes li")) > 1
    assert len(page.all(".plot polyline")) == 6
    assert "epsilon lies between 2.37" in page.one("#sentence").text
    assert "Report this: (2.37" in page.one("#report-this").text
    assert (
        page.script("return performance.getEntriesByType('resource').filter((r) => !r.name.startsWith(origin)).length")
        == 0
    )
    assert page.driver.get_log("browser") == []


def test_every_number_is_that_of_the_interface(page: Page, page_explorer: Explorer) -> None:
    """The exact values on the page are the doubles of /api/measure."""
    page.open(address(page_explorer, SMALL))
    _, answer = page_explorer.post("/api/measure", SMALL)
    row = answer["epsilon"][0]
    assert page.exact() == [row["lower"], row["upper"], row["claim"]]
    assert page.exact("advantage") == [answer["advantage"]["lower"], answer["advantage"]["upper"]]
    assert page.exact("regret")[0] >= answer["gdp"]["regret"]  # of mu as it is printed, rounded up


def test_changing_a_field_moves_everything(page: Page, page_explorer: Explorer) -> None:
    """More noise: a smaller bracket, another curve, another address. Another sampler: other notes."""
    page.open(address(page_explorer, SMALL))
    before, line = page.exact(), page.one("#profile polyline").get_attribute("points")
    notes, where = page.one("#notes").text, page.driver.current_url
    page.type("noise_multiplier", "2")
    after = page.exact()
    assert after[1] < before[0]
    assert page.one("#profile polyline").get_attribute("points") != line
    assert page.driver.current_url != where
    page.type("steps", "10")
    assert page.exact()[0] > after[1]
    page.choose("sampler", "balls-and-bins")
    page.until(lambda: page.one("#notes").text != notes, "other notes")


def test_exact_values_appear_on_hover(page: Page, page_explorer: Explorer) -> None:
    """Over a number its double; over a curve the doubles of both bounds."""
    from selenium.webdriver import ActionChains

    page.open(address(page_explorer, SMALL))
    cell = page.one("#numbers tr[data-kind=epsilon] [data-exact]")
    ActionChains(page.driver).move_to_element(cell).perform()
    assert page.one("#tip").text == f"attack: {cell.get_attribute('data-exact')}"
    ActionChains(page.driver).move_to_element(page.one("#profile svg")).perform()
    said = page.one("#tip").text
    assert re.fullmatch(r"Run A: delta \S+ to \S+ at epsilon \S+", said)


def test_the_noise_for_an_epsilon_is_solved_for(page: Page, page_explorer: Explorer) -> None:
    """The field gets the smallest noise whose proof meets what is wanted at the delta beside it."""
    page.open(address(page_explorer, SMALL))
    page.one("input[name=target]").send_keys("0.5")
    before = page.exact()
    page.one("#solve-noise").click()
    page.until(lambda: page.exact() != before, "another noise")
    page.settle()
    _, upper, _ = page.exact()
    assert 0.49 < upper <= 0.5


def test_solving_for_the_noise_counts_seconds_and_can_be_cancelled(page: Page, page_explorer: Explorer) -> None:
    """The button says for how long, ends the search when it is clicked again, and leaves the run as it was."""
    shuffled = {"dataset_size": 60_005, "batch_size": 250, "epochs": 30, "noise_multiplier": 1, "sampler": "shuffle"}
    page.open(address(page_explorer, {**shuffled, "last_batch": "drop", "adjacency": "zero-out"}))
    before, button = page.exact(), page.one("#solve-noise")
    page.one("input[name=target]").send_keys("0.1")
    button.click()
    page.until(lambda: button.text.startswith("Cancel ("), "a way to cancel")
    page.until(lambda: button.text not in ("Cancel (0 s)", "Solve for sigma"), "seconds")
    button.click()
    page.until(lambda: button.text == "Solve for sigma", "the search to end")
    assert page.exact() == before
    assert button.is_enabled()


def test_a_run_has_a_name_and_phases(page: Page, page_explorer: Explorer) -> None:
    """A second phase leaks more; its name and phases are in the address and in the verdict."""
    page.open(address(page_explorer, SMALL))
    one = page.exact()
    page.one("input[name=name]").send_keys("mine")
    page.one("#add-phase").click()
    page.until(lambda: page.exact()[:1] > one[1:2], "two phases to leak more")
    page.settle()
    assert "Phase 2:" in page.one("#words").text
    two = page.exact()
    page.one("#add").click()
    page.type("noise_multiplier", "5")
    page.until(lambda: "mine" in page.one("#winner").text, "the name in a verdict")
    page.open(page.driver.current_url)
    assert page.exact()[:2] == two[:2]
    page.one("[data-run=a]").click()
    page.one("#remove-phase").click()
    page.until(lambda: page.exact()[:2] == one[:2], "one phase again")


def test_four_runs_are_compared(page: Page, page_explorer: Explorer) -> None:
    """Copies are added up to four, each is changed on its own, and verdicts name them."""
    page.open(address(page_explorer, SMALL))
    for noise in ("2", "3", "4"):
        page.one("#add").click()
        page.type("noise_multiplier", noise)
    assert page.all("#add") == []
    assert len(page.exact()) == 8
    assert len(page.all("#profile polyline")) == 8
    page.until(lambda: len(page.all("#verdicts li")) == 6, "six verdicts")
    assert "Run D is certainly more private than Run A" in page.one("#verdicts").text
    shared = page.driver.current_url
    exact = page.exact()
    page.one("#remove").click()
    page.settle()
    assert len(page.exact()) == 6
    page.open(shared)
    assert page.exact() == exact


def test_every_sampler_has_its_own_fields(page: Page, page_explorer: Explorer) -> None:
    """Each that is registered can be chosen, and shows the keys that mean something to it and no others."""
    page.open(address(page_explorer, SMALL))
    offered = page.script("return [...document.querySelectorAll('select[name=sampler] option')].map((o) => o.value)")
    assert offered == list(SAMPLERS)
    for name in SAMPLERS:
        page.one(f"select[name=sampler] option[value='{name}']").click()
        shown = {field.get_attribute("data-key") for field in page.all("#own .field") if field.is_displayed()}
        # A rate that is computed from a batch size has no meaning where the rate itself is given.
        assert shown == set(scheme_named(name).keys) - {"derived_rate"}
    page.one("select[name=sampler] option[value='cyclic-poisson']").click()
    page.type("cycle", "5")
    assert "a.cycle=5" in page.driver.current_url


def test_a_unit_of_several_records_leaks_more(page: Page, page_explorer: Explorer) -> None:
    """What is protected and how many records it has are fields, are in the address, and count."""
    page.open(address(page_explorer, SMALL))
    one = page.exact()
    page.type("unit", "user", "error")
    assert "leaves open how many records one user has" in page.one("body").text
    page.type("records_per_unit", "2")
    assert page.exact()[0] > one[0]
    assert "user" in page.one("#report-this").text
    assert "a.unit=user&" in f"{page.driver.current_url}&"


def test_the_address_carries_every_field(page: Page, page_explorer: Explorer) -> None:
    """What was typed and chosen comes back when the address is opened again."""
    page.open(address(page_explorer, {**SMALL, "steps": 10}))
    page.choose("sampler", "deterministic")
    page.choose("adjacency", "zero-out")
    page.script("document.getElementById('questions').open = true")
    page.type("delta", "1e-6, 1e-7")
    page.type("steps", "20")
    rows = page.one("#numbers").text
    page.open(page.driver.current_url)
    assert page.one("#numbers").text == rows
    assert page.one("select[name=adjacency]").get_attribute("value") == "zero-out"
    assert page.one("input[name=delta]").get_attribute("value") == "1e-6, 1e-7"
    assert len(page.exact()) == 6


def test_run_and_reports_are_saved(page: Page, page_explorer: Explorer, tmp_path: Path) -> None:
    """run.toml reads back as the run; the reports are those of the command line."""
    page.open(address(page_explorer, SMALL))
    (tmp_path / "run.toml").write_text(page.saved("data-save=toml", "run.toml"), "utf-8")
    assert load_runs(tmp_path / "run.toml") == (Run(**SMALL),)
    assert json.loads(page.saved("data-save=json", "calipers.json"))["measurement"]["run"] == Run(**SMALL).to_dict()
    assert page.saved("data-save=html", "calipers.html").startswith("<!DOCTYPE html>")
    assert "Privacy of a DP-SGD run" in page.saved("data-save=md", "calipers.md")


def test_the_report_of_a_comparison_is_saved(page: Page, page_explorer: Explorer) -> None:
    """With one run there is nothing to compare; with two, each form holds both runs and the verdict shown."""
    page.open(address(page_explorer, SMALL))
    assert not page.one("#save-all").is_displayed()
    page.open(address(page_explorer, SMALL, {**SMALL, "noise_multiplier": 2}))
    page.until(lambda: page.one("#winner").text, "the verdict")
    said = page.one("#winner").text
    assert page.all("#verdicts li") == []  # it is said once
    record = json.loads(page.saved("data-save-all=json", "calipers-compare.json"))
    assert (record["kind"], record["verdict"]) == ("compare", said)
    assert [run["measurement"]["run"]["noise_multiplier"] for run in record["runs"]] == [1.0, 2.0]
    assert said in page.saved("data-save-all=md", "calipers-compare.md")
    # In HTML every number carries its digits in an element of its own.
    assert said.partition(", but for")[0] in page.saved("data-save-all=html", "calipers-compare.html")
    page.type("noise_multiplier", "-1", state="error")
    assert not page.one("#save-all").is_displayed()


@pytest.mark.parametrize(
    ("text", "said"),
    [("-1", "noise_multiplier in (0, inf)"), ("much", "got noise_multiplier='much'"), ("", "needs noise_multiplier")],
)
def test_bad_input_is_explained_beside_the_field(page: Page, page_explorer: Explorer, text: str, said: str) -> None:
    """The sentence of the command line, the field marked, no number left standing; and it goes when it is mended."""
    page.open(address(page_explorer, SMALL))
    box = page.one("input[name=noise_multiplier]")
    page.script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))", box, text
    )
    page.settle("error")
    assert said in page.one("#status").text
    assert "wrong" in page.one("[data-key=noise_multiplier]").get_attribute("class")
    assert page.all("#numbers [data-exact]") == []
    assert not page.one("[data-save=toml]").is_enabled()
    page.type("noise_multiplier", "1.5")
    assert page.all("#status .error") == []
    assert len(page.exact()) == 3


def test_a_long_measurement_can_be_cancelled(page: Page, page_explorer: Explorer) -> None:
    """The button ends it, the page says so, and the next change is measured."""
    page.driver.get("about:blank")
    page.driver.get(address(page_explorer, LONG))
    page.until(lambda: page.all("#status button"), "the cancel button")
    page.one("#status button").click()
    page.settle("error")
    assert "Cancelled" in page.one("#status").text
    page.choose("sampler", "deterministic")
    assert len(page.exact()) == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 1000), (390, 844)], ids=["desktop", "phone"])
def test_nothing_overlaps_or_sticks_out(
    page: Page, page_explorer: Explorer, scheme: str, width: int, height: int
) -> None:
    """No label lies on another, no picture is cut, the page is as wide as the screen, and the scheme is followed."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        page.open(address(page_explorer, SMALL))
        assert page.script(OVERLAPS) == []
        others = [
            {**SMALL, "sampler": "deterministic", "steps": 40},
            {**SMALL, "noise_multiplier": 9},
            {**SMALL, "steps": 900},
        ]
        page.open(address(page_explorer, SMALL, *others))
        assert page.script(OVERLAPS) == []
        assert page.script("return document.documentElement.scrollWidth") <= width
        red, green, blue = page.script(
            "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
        )
        assert (red + green + blue > 600) is (scheme == "light")
        if folder := os.environ.get("CALIPERS_SCREENSHOTS"):
            page.driver.save_screenshot(str(Path(folder) / f"explorer-{scheme}-{width}.png"))
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_page_of_another_site_gets_nothing(page: Page, page_explorer: Explorer) -> None:
    """From another origin neither a plain nor a simple request is answered, let alone read."""
    page.driver.get("data:text/html,<title>elsewhere</title>")
    ask = """
    const done = arguments[arguments.length - 1];
    fetch(arguments[0], {method: "POST", mode: arguments[1], body: arguments[2]})
      .then((r) => done([r.type, r.status]), (e) => done(["failed", 0]));
    """
    target = f"http://127.0.0.1:{page_explorer.port}/api/measure"
    assert page.driver.execute_async_script(ask, target, "cors", json.dumps(SMALL)) == ["failed", 0]
    kind, status = page.driver.execute_async_script(ask, target, "no-cors", json.dumps(SMALL))
    assert kind in ("opaque", "failed")
    assert status == 0
