"""The JSON interface over a real socket: what the command line answers, under load, and against strangers."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

import calipers.explorer as explorer_package
from calipers.cli import main
from calipers.phases import load_runs
from calipers.provenance import is_intact
from calipers.samplers import SAMPLERS, scheme_named

from .conftest import SLOW, SMALL

pytestmark = pytest.mark.explorer

ASSETS_TOLD = ("index.html", "app.js", "state.js", "view.js", "charts.js")
PATHS = ("/api/measure", "/api/explore", "/api/compare", "/api/report", "/api/compare/report", "/api/calibrate")
LINUX = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc, which only Linux has")


def command_line(command: str, *arguments: str) -> dict[str, object]:
    """What the command prints as JSON, but for where it comes from."""
    result = CliRunner().invoke(main, [command, *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return {key: value for key, value in json.loads(result.stdout).items() if key != "provenance"}


def explored(answer: tuple[int, dict[str, object]]) -> dict[str, object]:
    """The record of an answer without its origin, which is the explorer and whose hash fits."""
    status, record = answer
    assert status == 200, record
    assert is_intact(record)
    assert record["provenance"]["command"] == "calipers explore"
    return {key: value for key, value in record.items() if key != "provenance"}


def family(pid: int) -> dict[int, int]:
    """Resident kibibytes of a process and all its descendants, by process id."""
    parents, sizes = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except (OSError, ValueError):
            continue
        parents[int(fields["Pid"])] = int(fields["PPid"])
        sizes[int(fields["Pid"])] = int(fields.get("VmRSS", "0 kB").split()[0])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {one: sizes.get(one, 0) for one in found}


def busy_seconds(pid: int) -> float:
    """Processor time of a process and all its descendants."""
    total = 0
    for one in family(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def test_measure_answers_what_the_command_line_prints(explorer) -> None:
    """Key by key and double by double, for options and for a run file's keys."""
    printed = command_line(
        "measure", "--sample-rate", "0.1", "--steps", "5", "--noise-multiplier", "1", "--epsilon", "1"
    )
    assert len(printed.pop("relations")) == 3  # the page asks for one relation at a time, and is quicker
    assert explored(explorer.post("/api/measure", {**SMALL, "epsilon": 1})) == printed
    assert explored(explorer.post("/api/measure", {"run": SMALL, "epsilon": [1.0]})) == printed


def test_compare_answers_what_the_command_line_prints(explorer, tmp_path) -> None:
    """Measurements, verdicts and sentences."""
    runs = [SMALL, {**SMALL, "noise_multiplier": 2.0}]
    files = []
    for number, run in enumerate(runs):
        files.append(str(tmp_path / f"{number}.toml"))
        Path(files[-1]).write_text("".join(f"{key} = {value}\n" for key, value in run.items()))
        assert load_runs(files[-1])
    printed = command_line("compare", *(f"{number}={file}" for number, file in enumerate(files)))
    found = explored(explorer.post("/api/compare", {"runs": runs, "names": ["0", "1"]}))
    text = json.dumps(printed)
    for number, name in enumerate(files):
        text = text.replace(name, str(number))
    assert found == json.loads(text)


@pytest.mark.parametrize(("form", "beginning"), [("html", b"<!DOCTYPE html>"), ("md", b"## "), ("json", b"{")])
def test_reports_come_as_files(explorer, form: str, beginning: bytes) -> None:
    """Each form with its type and a name to save it under."""
    body = json.dumps({**SMALL, "format": form}).encode()
    status, headers, content = explorer.request("POST", "/api/report", body)
    assert (status, content[: len(beginning)]) == (200, beginning)
    assert headers["content-disposition"] == f'attachment; filename="calipers.{form}"'
    assert b"calipers explore" in content
    assert b"__main__" not in content


def test_the_form_is_the_registry(explorer) -> None:
    """Every sampler with its own keys, every key of a sampler with its values: nothing is left for the page to know."""
    status, _, content = explorer.request("GET", "/api/form")
    form = json.loads(content)
    assert status == 200
    assert [sampler["name"] for sampler in form["samplers"]] == list(SAMPLERS)
    for sampler in form["samplers"]:
        scheme = scheme_named(sampler["name"])
        assert (sampler["summary"], sampler["keys"]) == (scheme.summary, list(scheme.keys))
    assert {field["key"] for field in form["fields"]} == {key for name in SAMPLERS for key in scheme_named(name).keys}
    assert all(field["label"] != field["key"] for field in form["fields"])


def test_no_page_knows_a_sampler_by_name() -> None:
    """Scripts and the page itself compare no names: a sampler that is registered appears by itself."""
    assets = Path(explorer_package.__file__).with_name("assets")
    told = "".join(re.sub(r"^\s*//.*$", "", (assets / name).read_text("utf-8"), flags=re.M) for name in ASSETS_TOLD)
    assert [name for name in SAMPLERS if re.search(rf"[\"'`]{name}[\"'`]", told)] == []


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_a_comparison_comes_as_the_file_of_the_command_line(explorer, form: str, tmp_path, monkeypatch) -> None:
    """What `calipers compare --report` writes, but for files and the command; with a name to save it under."""
    monkeypatch.chdir(tmp_path)
    # One whose jaws close and one whose jaws do not, so that every part of the report has something to say.
    runs = {"poisson.toml": SMALL, "shuffle.toml": {**SMALL, "steps": 10, "sampler": "shuffle"}}
    for name, run in runs.items():
        lines = (f"{key} = {json.dumps(value)}\n" for key, value in run.items())
        Path(name).write_text("".join(lines), "utf-8")
    names = [name.removesuffix(".toml") for name in runs]
    named = [f"{name}={file}" for name, file in zip(names, runs, strict=True)]
    result = CliRunner().invoke(main, ["compare", *named, "--report", f"out.{form}"])
    assert result.exit_code == 0, result.output
    body = {"runs": list(runs.values()), "names": names}
    asked = json.dumps({**body, "format": form}).encode()
    status, headers, content = explorer.request("POST", "/api/compare/report", asked)
    assert status == 200
    sent, written = (" ".join(text.split()) for text in (content.decode(), Path(f"out.{form}").read_text("utf-8")))
    for pair in explorer.post("/api/compare", body)[1]["verdicts"]:
        said = pair["sentence"].split(", but for")[0]  # what follows has marks of its own in HTML
        assert said in sent
        assert said in written
    assert headers["content-disposition"] == f'attachment; filename="calipers-compare.{form}"'


def test_a_run_that_cannot_be_compared_is_named(explorer) -> None:
    """The refusal of a comparison says which of its runs is at fault."""
    undecided = {**SMALL, "normalization": "realized", "dataset_size": 1000, "adjacency": "zero-out", "dimension": 3}
    for kind, wrong in (("input", {**SMALL, "noise_multiplier": 0}), ("unsupported", undecided)):
        status, answer = explorer.post("/api/compare/report", {"runs": [SMALL, wrong], "names": ["one", "two"]})
        assert (status, answer["kind"]) == (422, kind)
        assert answer["error"].startswith("two: ")


BAD = [
    b"",
    b"{",
    b"\x00\xff",
    b"[" * 30_000,
    b'"text"',
    b'{"noise_multiplier": NaN}',
    b'{"noise_multiplier": 1e999, "sample_rate": 0.1, "steps": 1}',
    json.dumps({**SMALL, "noise_multiplier": -1}).encode(),
    json.dumps({**SMALL, "noise_multiplier": "\ud800 <script>"}).encode(),
    json.dumps({**SMALL, "sampler": "x" * 50_000}).encode(),
    json.dumps({**SMALL, "delta": [0.5] * 1000}).encode(),
    json.dumps({**SMALL, "steps": 10**300}).encode(),
    json.dumps({**SMALL, "noise_multiplier": 1e-9}).encode(),
    json.dumps({"run": {"phase": [{"phase": []}]}}).encode(),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_bad_input_is_422_with_a_reason(explorer, path: str, body: bytes) -> None:
    """One sentence of bounded length, whatever was sent."""
    status, answer = explorer.post(path, body)
    assert status == 422
    assert 10 < len(answer["error"]) <= 600
    assert answer["kind"] == "input"


def test_other_refusals(explorer) -> None:
    """A wrong type of body, an unknown address, an unknown form of report, a body beyond the limit."""
    assert (
        explorer.request("POST", "/api/measure", json.dumps(SMALL).encode(), {"Content-Type": "text/plain"})[0] == 422
    )
    assert explorer.request("GET", "/api/measure")[0] == 404
    assert explorer.request("GET", "/assets/../app.py")[0] == 404
    assert explorer.post("/api/report", {**SMALL, "format": "exe"})[0] == 422
    assert explorer.post("/api/compare/report", {"runs": [SMALL, SMALL], "format": ["html"]})[0] == 422
    status, answer = explorer.post("/api/measure", b'{"a": "' + b"x" * 70_000 + b'"}')
    assert (status, "at most 65536 bytes" in answer["error"]) == (413, True)


def test_what_takes_too_long_is_stopped(explorer) -> None:
    """504 with the limit named, and the next request is answered as if nothing had been."""
    began = time.monotonic()
    status, answer = explorer.post("/api/measure", SLOW)
    assert (status, answer["kind"], answer["error"]) == (504, "too slow", "Stopped after 4 s without an answer.")
    assert time.monotonic() - began < 30
    assert explorer.post("/api/measure", SMALL)[0] == 200


@LINUX
def test_a_client_that_leaves_ends_its_computation(explorer) -> None:
    """Within a few seconds nothing computes any more, though the time limit is far."""
    before = set(family(explorer.process.pid))
    connection = http.client.HTTPConnection("127.0.0.1", explorer.port)
    connection.request("POST", "/api/measure", json.dumps({**SLOW, "dimension": 999}))
    time.sleep(1.5)
    connection.close()
    time.sleep(2.5)
    after = set(family(explorer.process.pid))
    assert before - after, "the worker was replaced"
    busy = busy_seconds(explorer.process.pid)
    time.sleep(1.0)
    assert busy_seconds(explorer.process.pid) - busy < 0.3


def test_malformed_and_half_sent_requests_do_no_harm(explorer) -> None:
    """Bytes that are no HTTP, a body cut short, a connection closed at once: the next request is answered."""
    for sent in (
        b"\x00\x01\x02\r\n\r\n",
        b"POST /api/measure HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 100\r\n\r\n{",
        b"",
    ):
        with socket.create_connection(("127.0.0.1", explorer.port)) as raw:
            raw.sendall(sent % explorer.port if b"%d" in sent else sent)
    assert explorer.post("/api/measure", SMALL)[0] == 200


@LINUX
def test_no_other_host_can_connect(explorer) -> None:
    """The kernel lists one listening socket on this port, and its address is 127.0.0.1."""
    listening = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:] if Path(table).exists() else []:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.rsplit(":", 1)[1], 16) == explorer.port:
                listening.append(local.rsplit(":", 1)[0])
    assert listening == ["0100007F"]


def test_strangers_are_refused(explorer) -> None:
    """A rebound name and another site's page get 403, and no header lets them read it."""
    for headers in ({"Host": f"rebound.example:{explorer.port}"}, {"Origin": "http://example.org"}):
        status, answer = explorer.post("/api/measure", SMALL, **headers)
        assert (status, answer["kind"]) == (403, "refused")
    preflight = {"Origin": "http://example.org", "Access-Control-Request-Method": "POST"}
    status, headers, _ = explorer.request("OPTIONS", "/api/measure", None, preflight)
    assert status == 403
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_the_interface_is_described(explorer) -> None:
    """Every route of the interface is in the OpenAPI document and on the page /api."""
    status, _, body = explorer.request("GET", "/api/openapi.json")
    paths = json.loads(body)["paths"]
    assert (status, set(paths)) == (200, set(PATHS))
    page = explorer.request("GET", "/api")[2].decode()
    assert all(f"POST {path}" in page for path in paths)


@LINUX
def test_two_hundred_mixed_requests_from_eight_clients(explorer) -> None:
    """Every request gets the answer it deserves, and memory stays bounded: good 200, bad 422, huge 413, slow 504."""
    huge = b'{"a": "' + b"x" * 1_000_000 + b'"}'

    def ask(number: int) -> tuple[str, int, float]:
        began = time.monotonic()
        if number % 50 == 7:
            kind, body = "slow", json.dumps({**SLOW, "dimension": 1000 + number}).encode()
        elif number % 10 == 3:
            kind, body = "huge", huge
        elif number % 4 == 1:
            kind, body = "bad", BAD[number % len(BAD)]
        else:
            kind, body = "good", json.dumps({**SMALL, "noise_multiplier": 1 + number % 40 / 10}).encode()
        try:
            status = explorer.request("POST", "/api/measure", body)[0]
        except (BrokenPipeError, ConnectionResetError):
            # The server answers a body that is too large before it has all arrived, and hangs up.
            status = 413 if kind == "huge" else 0
        return kind, status, time.monotonic() - began

    before = sum(family(explorer.process.pid).values())
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, range(200)))
    expected = {"good": 200, "bad": 422, "huge": 413, "slow": 504}
    assert [(kind, status) for kind, status, _ in answers if status != expected[kind]] == []
    assert len(answers) == 200
    assert explorer.process.poll() is None
    grown = sum(family(explorer.process.pid).values()) - before
    assert grown < 1_000_000, f"{grown} KiB"


def p95_of_default_measures(explorer, noises: list[float]) -> float:
    """The time within which 95 of 100 default measurements are answered, one after the other."""
    default = {"dataset_size": 60_000, "batch_size": 256, "epochs": 60}
    times = []
    for noise in noises:
        began = time.monotonic()
        assert explorer.post("/api/measure", {**default, "noise_multiplier": noise})[0] == 200
        times.append(time.monotonic() - began)
    return statistics.quantiles(times, n=20)[-1]


def test_a_default_measure_takes_about_half_a_second(explorer) -> None:
    """Whether it was asked before or not; the limits leave room for a busy machine."""
    fresh = [1.1 + number / 1000 for number in range(40)]
    p95_of_default_measures(explorer, [2.0, 3.0])  # the first of a process loads what the others find loaded
    assert p95_of_default_measures(explorer, fresh) < 1.5
    assert p95_of_default_measures(explorer, [fresh[0]] * 100) < 0.3


@LINUX
def test_ctrl_c_ends_everything(start_explorer) -> None:
    """Exit status 0, nothing on standard error, no process left behind."""
    one = start_explorer()
    assert one.post("/api/measure", SMALL)[0] == 200
    members = set(family(one.process.pid))
    assert len(members) > 2
    assert one.stop() == (0, "")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(Path(f"/proc/{member}").exists() for member in members):
        time.sleep(0.1)
    assert [member for member in members if Path(f"/proc/{member}").exists()] == []


def test_a_named_port_is_used_and_a_taken_one_refused(explorer) -> None:
    """Exit status 2 with one sentence, nothing on standard output."""
    result = CliRunner().invoke(main, ["explore", "--no-browser", "--port", str(explorer.port)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Port {explorer.port} cannot be used" in result.stderr
