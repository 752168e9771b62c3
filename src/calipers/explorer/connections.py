"""Connections: how many are served, and for how long one may keep the server waiting for a request.

Half a request header costs whoever sends it nothing, and holds a place. So a header has to arrive within some seconds,
from the first byte of the connection or of the next request on it; browsers that hold a connection in reserve open
another when they need it. The connections that fit are served whatever comes after them; those beyond are given so.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 512
"""Idle connections of browsers count; a page keeps up to six. Each takes one of the files that a process may open."""
HEADER_SECONDS = 10.0


class Connection(H11Protocol):
    """One connection, which is closed if a request does not arrive in time."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for a request; where too many connections are open already, to say so."""
        # Asked for each request: a connection beyond those that fit is refused, and no other for its sake.
        self.limit_concurrency = 0 if len(self.connections) >= MOST_CONNECTIONS else None
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Go on reading; a request that has begun must have its header in time, and one that has it has time."""
        if self._is_idle():
            self._wait()
        super().data_received(data)
        if not self._is_idle():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits for anything any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
