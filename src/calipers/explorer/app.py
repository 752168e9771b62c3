"""The routes: the page, its assets, and the JSON interface that the page itself uses.

Every refusal is one object {"error": sentence, "kind": word}. Bad input is 422 with the sentence that the command line
would print, a body that is too large 413, a computation that takes too long 504, too many waiting requests 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response

from calipers._version import __version__
from calipers.errors import InputError
from calipers.explorer import jobs
from calipers.explorer.form import form_record
from calipers.explorer.guard import BodyError, read_body
from calipers.explorer.interface import OPERATIONS, REPORT_TYPES
from calipers.explorer.jobs import Refusal, Reply, shortened
from calipers.explorer.requests import read_asked, read_asked_noise, read_asked_together, read_object
from calipers.explorer.service import Service
from calipers.explorer.workers import Limits, TooBusyError
from calipers.reports.records import to_json

T = TypeVar("T")
Body = dict[str, object]

ASSETS = Path(__file__).with_name("assets")
ASSET_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Every other refusal is about the run that was sent.
STATUSES = {"too slow": 504, "too busy": 503, "ended": 503, "defect": 500}
CLIENT_LEFT = 499


class LeftError(Exception):
    """The one who asked has closed the connection."""


def refused(refusal: Refusal, status: int | None = None) -> Response:
    """The answer to a request that gets none."""
    content = to_json({"error": refusal.reason, "kind": refusal.kind})
    found = STATUSES.get(refusal.kind, 422) if status is None else status
    headers = {"retry-after": "1"} if found == 503 else None
    return Response(content, status_code=found, media_type="application/json", headers=headers)


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """The result of the work, which is cancelled when the client leaves first."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise LeftError
        return task.result()
    finally:
        task.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _object(request: Request) -> dict[str, object]:
    """The JSON object of the body. A body that says it is something else is taken at its word."""
    body = await read_body(request.receive)
    kind = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if kind != "application/json":
        raise InputError(f"Expected Content-Type: application/json, got {kind!r}.")
    return read_object(body)


def build(limits: Limits | None = None) -> FastAPI:
    """The application, with its workers started and ended by the server's lifespan."""
    service = Service(limits or Limits())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.pool.start()
        try:
            yield
        finally:
            service.stop()

    app = FastAPI(
        title="Calipers explorer",
        version=__version__,
        description="The JSON interface of `calipers explore`, for this machine only.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # the documentation pages of FastAPI load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    _add_errors(app)
    _add_pages(app)
    _add_interface(app, service)
    return app


def _add_errors(app: FastAPI) -> None:
    def add(kind: type[Exception] | int, reply: Callable[[Request, Any], Response]) -> None:
        async def answer(request: Request, error: Exception) -> Response:
            return reply(request, error)

        app.add_exception_handler(kind, answer)

    def unknown(request: Request, _: Exception) -> Response:
        reason = f"There is nothing at {request.method} {request.url.path}; see /api for what there is."
        return refused(Refusal("input", shortened(reason)), 404)

    add(InputError, lambda _, error: refused(Refusal("input", shortened(str(error)))))
    add(BodyError, lambda _, error: refused(Refusal("input", str(error)), error.status))
    add(TooBusyError, lambda _, error: refused(Refusal("too busy", str(error))))
    add(LeftError, lambda _, error: Response(status_code=CLIENT_LEFT))
    add(404, unknown)
    add(405, unknown)


def _add_pages(app: FastAPI) -> None:
    # Read once: a request never names a file.
    assets = {path.name: (path.read_bytes(), ASSET_TYPES[path.suffix]) for path in ASSETS.iterdir()}

    def add(address: str, name: str) -> None:
        @app.get(address, include_in_schema=False)
        async def asset() -> Response:
            content, kind = assets[name]
            return Response(content, media_type=kind)

    for address, name in (("/", "index.html"), ("/api", "api.html"), ("/favicon.ico", "icon.svg")):
        add(address, name)
    for name in assets:
        add(f"/assets/{name}", name)

    form = to_json(form_record()).encode()

    @app.get("/api/form", include_in_schema=False)  # for the page: see `form`
    async def asked_form() -> Response:
        return Response(form, media_type=REPORT_TYPES["json"])


def _add_interface(app: FastAPI, service: Service) -> None:
    def add(address: str, ask: Callable[[Body, str], Awaitable[Reply]], file: str = "", *, page: bool = False) -> None:
        """A route: what it asks the service, and the stem of the file to save where its answer is a report."""
        name = address.replace("/", " ")

        @app.post(f"/api/{address}", name=name.replace(" ", "_"), **OPERATIONS[name])
        async def route(request: Request) -> Response:
            body = await _object(request)
            form = _taken_format(body) if file else "json"
            reply = await while_connected(request, ask(body, form))
            if isinstance(reply, Refusal):
                return refused(reply)
            attached = {"content-disposition": f'attachment; filename="{file}.{form}"'} if file else None
            return Response(reply.page if page else reply.content, media_type=REPORT_TYPES[form], headers=attached)

    add("measure", lambda body, _: service.answered(jobs.measured, read_asked(body)))
    add("explore", lambda body, _: service.answered(jobs.measured, read_asked(body)), page=True)
    add("compare", lambda body, _: service.compared(read_asked_together(body)))
    add("calibrate", lambda body, _: service.answered(jobs.calibrated, read_asked_noise(body)))
    add("report", lambda body, form: service.answered(jobs.report, read_asked(body), form), "calipers")
    add(
        "compare/report",
        lambda body, form: service.comparison_report(read_asked_together(body), form),
        "calipers-compare",
    )


def _taken_format(record: dict[str, object]) -> str:
    """The form of the report, taken out of the body; the rest describes what it is about."""
    form = record.pop("format", "html")
    if not isinstance(form, str) or form not in REPORT_TYPES:
        raise InputError(f"Expected format to be one of {', '.join(map(repr, REPORT_TYPES))}, got format={form!r}.")
    return form
