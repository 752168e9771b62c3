"""Half a request holds no place for long, connections that fit are served, an ended process is no want of memory."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import needs_fastapi

pytestmark = pytest.mark.explorer
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(0.05)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.fixture
def port() -> Iterator[int]:
    """A server of the explorer's connections, with an application of two letters."""
    needs_fastapi()
    import uvicorn

    from calipers.explorer.connections import Connection
    from calipers.explorer.server import BACKLOG, bound_socket

    with bound_socket() as listening:
        config = uvicorn.Config(_hello, http=Connection, ws="none", lifespan="off", log_level="error", backlog=BACKLOG)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


def _opened(port: int, count: int, sent: bytes) -> list[socket.socket]:
    found = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(count)]
    for one in found:
        one.sendall(sent)
    return found


def _answers(connections: list[socket.socket]) -> list[bytes]:
    found = [one.recv(4096)[9:12] for one in connections]
    for one in connections:
        one.close()
    return found


def test_half_sent_headers_keep_nobody_out_and_are_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calipers.explorer.connections.HEADER_SECONDS", 0.4)
    began = time.monotonic()
    half = _opened(port, 130, REQUEST[:20])
    assert _answers(_opened(port, 10, REQUEST)) == [b"200"] * 10
    assert [one.recv(1) for one in half] == [b""] * 130
    assert 0.3 < time.monotonic() - began < 10
    for one in half:
        one.close()


def test_the_next_header_of_a_connection_must_arrive_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calipers.explorer.connections.HEADER_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
        for _ in range(2):
            one.sendall(REQUEST)
            said = b""
            while not said.endswith(b"hi"):
                said += one.recv(4096)
            assert said[9:12] == b"200"
        one.sendall(REQUEST[:20])
        assert one.recv(1) == b""


def test_a_burst_of_connections_is_served(port: int) -> None:
    assert _answers(_opened(port, 300, REQUEST)) == [b"200"] * 300


def test_beyond_what_fits_the_newest_are_refused(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calipers.explorer.connections.MOST_CONNECTIONS", 64)
    found = _answers(_opened(port, 100, REQUEST))
    assert found[:64] == [b"200"] * 64
    assert set(found[64:]) == {b"503"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "said"),
    [(functools.partial(signal.raise_signal, signal.SIGKILL), "SIGKILL"), (functools.partial(os._exit, 3), "status 3")],
)
def test_a_worker_that_was_ended_is_not_called_too_large(job: Any, said: str) -> None:
    needs_fastapi()
    from calipers.explorer.workers import Limits, WorkerPool

    async def asked() -> tuple[str, str]:
        pool = WorkerPool(Limits(workers=1))
        await pool.start()
        try:
            reply: Any = await pool.answer(None, job)
            again: Any = await pool.answer(None, functools.partial(int, "3"))  # by the process that took its place
            assert again == 3
            return reply.kind, reply.reason
        finally:
            pool.stop()

    kind, reason = asyncio.run(asked())
    assert kind == "ended"
    assert said in reason
