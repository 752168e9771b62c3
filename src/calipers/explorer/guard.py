"""Who may ask: this machine, and on it the page itself.

The socket is bound to 127.0.0.1, so no other host reaches it. Pages of other sites, open in the same browser, still
could; three checks stop them.

- Host must name this server. A name that an attacker's DNS points at 127.0.0.1 ("DNS rebinding") makes the browser
  treat the attacker's page and this server as one site; the Host header then carries the attacker's name.
- Origin, which a browser adds to every POST of a page, must be this server, and Sec-Fetch-Site, where sent, must not
  say that another site asks.
- No answer ever carries a header of the CORS family, so no page of another site may read one.

Bodies are bounded in size and in the time they may take to arrive.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 64 * 1024
BODY_SECONDS = 10.0
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class BodyError(Exception):
    """A body that is too large or does not arrive; carries the status to answer with."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Guard:
    """Wraps the application: refuses strangers, adds the headers that keep the page to itself."""

    def __init__(self, application: Application, port: int) -> None:
        self._application = application
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as every ASGI application does."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        reason = self.objection(scope)
        if reason:
            await refuse(send_guarded, 403, reason)
        else:
            await self._application(scope, receive, send_guarded)

    def objection(self, scope: Scope) -> str:
        """Why a request is not answered; empty when it is."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip().lower())
        hosts = headers.get("host", [])
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return "The Host header does not name this server; open the address that calipers explore printed."
        if any(origin not in self._origins for origin in headers.get("origin", [])):
            return "Pages of other sites may not ask this server."
        site = headers.get("sec-fetch-site", ["none"])
        followed_link = scope["method"] == "GET" and headers.get("sec-fetch-mode") == ["navigate"]
        if not followed_link and any(value not in ("same-origin", "none") for value in site):
            return "Pages of other sites may not ask this server."
        return ""


async def refuse(send: Send, status: int, reason: str) -> None:
    """One JSON object with the reason."""
    content = json.dumps({"error": reason, "kind": "refused"}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def read_body(receive: Receive) -> bytes:
    """The whole body, or `BodyError` when it is larger than `LARGEST_BODY` or takes longer than `BODY_SECONDS`."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise BodyError(400, "The connection closed before the body had arrived.")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > LARGEST_BODY:
                    raise BodyError(413, f"Expected a body of at most {LARGEST_BODY} bytes.")
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise BodyError(408, f"The body did not arrive within {BODY_SECONDS:g} s.") from None
