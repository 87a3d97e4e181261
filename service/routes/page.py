"""The page at `/`: static files that ask this service and nothing else.

They are read once, when the service starts, and say for themselves what a browser may do with them:
run scripts and styles of this service only, send texts nowhere else, turn no text into HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.web.paths import PAGE_PREFIX

INDEX = "index.html"

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Cache-Control": "no-cache",  # kept, but asked about each time: a new release shows at once
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page.

    Attributes:
        content: Its bytes.
        media_type: What they are.
        etag: Names exactly these bytes (RFC 9110, 8.8.3).
    """

    content: bytes
    media_type: str
    etag: str


def read_page() -> dict[str, PageFile]:
    """Return the files of the page by name, from wherever the package is installed."""
    return {
        file.name: _page_file(file.name, file.read_bytes())
        for file in resources.files("service").joinpath("page").iterdir()
        if PurePosixPath(file.name).suffix in _MEDIA_TYPES
    }


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """Return the page."""
    return _answer(request, INDEX)


@router.api_route(PAGE_PREFIX + "{name}", methods=["GET", "HEAD"])
async def asset(request: Request, name: str) -> Response:
    """Return a script, a style or an image of the page."""
    return _answer(request, name)


def _page_file(name: str, content: bytes) -> PageFile:
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return PageFile(content, _MEDIA_TYPES[PurePosixPath(name).suffix], etag)


def _answer(request: Request, name: str) -> Response:
    files: Mapping[str, PageFile] = request.app.state.page
    file = files.get(name)
    if file is None:
        raise HTTPException(404)
    headers = _HEADERS | {"ETag": file.etag}
    known = request.headers.get("if-none-match", "")
    # Weak comparison: a proxy that packs an answer may have marked its tag as weak.
    if file.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
