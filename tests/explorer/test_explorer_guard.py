"""The guard lets this machine's own page ask, and nobody else; bodies are bounded in size and in time."""

from __future__ import annotations

import asyncio
import json

import pytest

from calipers.errors import InputError
from calipers.explorer import guard
from calipers.explorer.guard import BodyError, Guard, read_body
from calipers.explorer.server import bound_socket, shared_state

PORT = 8123
HOST = ("host", f"127.0.0.1:{PORT}")


async def inner(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


def ask(*headers: tuple[str, str], method: str = "POST") -> tuple[int, dict[str, str], bytes]:
    sent: list[dict] = []

    async def send(message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "headers": [(n.encode(), v.encode()) for n, v in headers]}
    asyncio.run(Guard(inner, PORT)(scope, None, send))
    start = sent[0]
    return start["status"], {n.decode(): v.decode() for n, v in start["headers"]}, sent[1]["body"]


@pytest.mark.parametrize(
    "headers",
    [
        (HOST,),
        (("host", f"LOCALHOST:{PORT}"),),
        (HOST, ("origin", f"http://127.0.0.1:{PORT}"), ("sec-fetch-site", "same-origin")),
        (HOST, ("origin", f"http://localhost:{PORT}")),
        (HOST, ("sec-fetch-site", "none")),
    ],
)
def test_own_pages_and_programs_may_ask(headers) -> None:
    """A program without an Origin, and the page under either of its names."""
    status, _, body = ask(*headers)
    assert (status, body) == (200, b"inside")


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("host", "127.0.0.1"),),
        (("host", f"127.0.0.1:{PORT + 1}"),),
        (("host", f"rebound.example:{PORT}"),),
        (("host", f"127.0.0.1:{PORT}.example"),),
        (HOST, ("host", "rebound.example")),
        (HOST, ("origin", "null")),
        (HOST, ("origin", "http://example.org")),
        (HOST, ("origin", f"https://127.0.0.1:{PORT}")),
        (HOST, ("origin", f"http://127.0.0.1:{PORT + 1}")),
        (HOST, ("sec-fetch-site", "cross-site")),
        (HOST, ("sec-fetch-site", "same-site")),
        (HOST, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")),
    ],
)
def test_strangers_are_refused_before_the_application(headers) -> None:
    """Names that point here from elsewhere, and pages of other sites, get 403 with a reason."""
    status, _, body = ask(*headers)
    assert status == 403
    assert json.loads(body)["error"]


def test_a_link_from_another_site_may_open_the_page() -> None:
    """Following a link is no cross-site use: the page that opens is this one."""
    followed = (HOST, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"))
    assert ask(*followed, method="GET")[0] == 200
    assert ask(HOST, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), method="GET")[0] == 403


@pytest.mark.parametrize("headers", [(HOST,), (("host", "rebound.example"),)], ids=["answered", "refused"])
def test_no_answer_may_be_read_framed_or_kept_by_others(headers) -> None:
    """Every answer, refusals included, carries the headers that keep it here, and none of the CORS family."""
    _, found, _ = ask(*headers)
    assert "frame-ancestors 'none'" in found["content-security-policy"]
    assert found["cross-origin-resource-policy"] == "same-origin"
    assert found["x-content-type-options"] == "nosniff"
    assert not [name for name in found if name.startswith("access-control-")]


def receiving(*messages: dict):
    waiting = list(messages)

    async def receive() -> dict:
        if not waiting:
            await asyncio.sleep(60)
        return waiting.pop(0)

    return receive


def part(body: bytes, more: bool = True) -> dict:
    return {"type": "http.request", "body": body, "more_body": more}


def test_bodies_arrive_whole() -> None:
    """Parts are joined, up to and including the largest size."""
    half = b"x" * (guard.LARGEST_BODY // 2)
    assert asyncio.run(read_body(receiving(part(half), part(half, more=False)))) == half + half


def test_a_body_is_refused_as_soon_as_it_is_too_large() -> None:
    """Without waiting for the rest, whatever length was announced."""
    with pytest.raises(BodyError) as caught:
        asyncio.run(read_body(receiving(part(b"x" * guard.LARGEST_BODY), part(b"x"))))
    assert caught.value.status == 413


def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops in the middle holds nothing for longer than the limit."""
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.05)
    with pytest.raises(BodyError) as caught:
        asyncio.run(read_body(receiving(part(b"{"))))
    assert caught.value.status == 408


def test_the_socket_is_bound_to_this_machine_only() -> None:
    """127.0.0.1, a free port unless one is named; a port in use is refused with a remedy."""
    with bound_socket() as one:
        host, port = one.getsockname()
        assert (host, port > 0) == ("127.0.0.1", True)
        with pytest.raises(InputError, match=f"Port {port} cannot be used"):
            bound_socket(port)
    with pytest.raises(InputError, match="port"):
        bound_socket(65536)


@pytest.mark.parametrize(
    ("address", "state"),
    [
        (None, ""),
        ("http://127.0.0.1:1/#a.steps=1&a.sampler=balls-and-bins", "#a.steps=1&a.sampler=balls-and-bins"),
        ("#a.steps=1", "#a.steps=1"),
    ],
)
def test_a_shared_address_keeps_only_its_runs(address: str | None, state: str) -> None:
    """Whose port it was does not matter."""
    assert shared_state(address) == state


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/", "run.toml", "#<script>", "#a=" + "1" * 9000])
def test_other_addresses_are_refused(address: str) -> None:
    """Nothing is opened that the explorer did not write."""
    with pytest.raises(InputError, match="copied from the explorer"):
        shared_state(address)
