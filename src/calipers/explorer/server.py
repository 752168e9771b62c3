"""The socket, the server, and the end of both.

The socket is bound before the server starts, to 127.0.0.1 and to a free port unless one is named: the address is known
before anything is printed, and it cannot be taken by somebody else in between.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from calipers.domains import Domain
from calipers.errors import InputError
from calipers.explorer.guard import Guard
from calipers.explorer.workers import Limits
from calipers.extras import library

HOST = "127.0.0.1"
PORT = Domain(0, 65535, integer=True)
BACKLOG = 1024
"""Connections that the system keeps until the server takes them."""
LONGEST_STATE = 8_000


def bound_socket(port: int = 0) -> socket.socket:
    """A listening socket that only this machine reaches; port 0 stands for a free one."""
    number = PORT.check_int("port", port)
    try:
        return socket.create_server((HOST, number), backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise InputError(f"Port {port} cannot be used: {reason}; name another, or none.") from error


def shared_state(address: str | None) -> str:
    """The part of a shared address that describes the runs, which begins with "#"."""
    if address is None:
        return ""
    _, mark, state = address.partition("#")
    if not mark or len(state) > LONGEST_STATE or not re.fullmatch(r"[\w.%&=+\-:,]*", state, re.ASCII):
        raise InputError(
            "Expected an address copied from the explorer, with the runs after a '#'; got one without them."
        )
    return f"#{state}"


def build_server(listening: socket.socket, limits: Limits | None = None) -> Any:
    """A uvicorn server for the socket; `server.run(sockets=[listening])` blocks until it is given to end."""
    for name in ("fastapi", "uvicorn"):
        library(name, "The explorer needs FastAPI and uvicorn: pip install '.[explorer]'.")
    import uvicorn

    from calipers.explorer.app import build
    from calipers.explorer.connections import Connection

    config = uvicorn.Config(
        Guard(build(limits), listening.getsockname()[1]),
        # h11 is what every installation of uvicorn has; it answers malformed requests with 400.
        http=Connection,
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(
    *,
    port: int = 0,
    state: str = "",
    browser: bool = True,
    limits: Limits | None = None,
    announce: Callable[[str], None],
) -> None:
    """Serve the page until Ctrl+C. `announce` gets its address once it can be opened."""
    with bound_socket(port) as listening:
        server = build_server(listening, limits)
        address = f"http://{HOST}:{listening.getsockname()[1]}/{state}"
        # A listening socket keeps early visitors waiting, so the address is good before the server has started.
        announce(address)
        if browser:
            # A browser that blocks (a text browser, a broken one) must not keep the server from starting.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
