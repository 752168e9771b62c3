"""A real explorer in a process of its own, and a client that keeps nothing between requests."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE, ENDLESS = Path(__file__).parents[2] / "src", Path(__file__).parent / "endless"
SMALL = {"sample_rate": 0.1, "steps": 5, "noise_multiplier": 1.0}
"""A run that is measured at once."""
SLOW = {**SMALL, "unit": "endless", "records_per_unit": 2}
"""A run that a tested explorer never has done with: `endless/sitecustomize.py`."""
LONG = {"dataset_size": 350_551, "batch_size": 249, "epochs": 357, "noise_multiplier": 0.34}
LONG |= {"sampler": "shuffle", "adjacency": "substitute"}
"""A run that takes seconds, and is one under other samplers too."""


class Explorer:
    """`calipers explore` as a user starts it."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "calipers", "explore", "--no-browser", *options],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCE), str(ENDLESS)))},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\S*", said)
        assert found, said
        self.address, self.port = found[0], int(found[1])

    def request(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None):
        """(status, headers, body) over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def post(self, path: str, record: object, **headers: str):
        """(status, parsed JSON) of a JSON request."""
        content = record if isinstance(record, bytes) else json.dumps(record).encode()
        status, _, body = self.request("POST", path, content, {"Content-Type": "application/json", **headers})
        return status, json.loads(body)

    def stop(self) -> tuple[int, str]:
        """Ctrl+C; the exit status and what was said on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


def needs_fastapi() -> None:
    """Skip without FastAPI, with the reason; where the tests are required, fail."""
    if os.environ.get("CALIPERS_BROWSER") != "required":
        pytest.importorskip("fastapi", reason="FastAPI comes with the extra explorer")


@pytest.fixture
def start_explorer():
    """Start explorers that end with the test."""
    needs_fastapi()
    started: list[Explorer] = []

    def start(*options: str) -> Explorer:
        started.append(Explorer(*options))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


@pytest.fixture(scope="session")
def explorer():
    """One explorer for all tests that leave it as they found it."""
    needs_fastapi()
    one = Explorer("--time-limit", "4")
    yield one
    status, errors = one.stop()
    assert (status, errors) == (0, "")
