"""The page at `/` and the API's at `/docs`: static files that ask this service and nothing else.

They are read once, at the start. Their headers let a browser run scripts and styles of this service
only, and send texts nowhere else. The page at `/` may turn
no text into HTML either; Swagger UI, at `/docs`, does so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath
from threading import Lock

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from longtail.service.http.deps import DOCS_PATH, PAGE_PREFIX

INDEX = "index.html"

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_CACHE_CONTROL = "no-cache"  # kept, but asked about each time: a new release shows at once
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_POLICY = (
    _DOCS_POLICY.replace(" data:", "")
    + "; require-trusted-types-for 'script'; trusted-types 'none'"
)

router = APIRouter(include_in_schema=False)
_OPENAPI_LOCK = Lock()


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page.

    Attributes:
        content: Its bytes.
        media_type: Its media type.
        etag: Names exactly these bytes (RFC 9110, 8.8.3).
    """

    content: bytes
    media_type: str
    etag: str


def read_page(folder: str = "page") -> dict[str, PageFile]:
    """Return the files of a page by name, from the installed package.

    Args:
        folder: A folder of the package: "page" or "api_docs".
    """
    return {
        file.name: _page_file(file.name, file.read_bytes())
        for file in resources.files("longtail.service").joinpath(folder).iterdir()
        if PurePosixPath(file.name).suffix in _MEDIA_TYPES
    }


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """Return the page."""
    return _answer(request, request.app.state.page, INDEX, _PAGE_POLICY)


@router.api_route(PAGE_PREFIX + "{name}", methods=["GET", "HEAD"])
async def asset(request: Request, name: str) -> Response:
    """Return a script, a style or an image of the page."""
    return _answer(request, request.app.state.page, name, _PAGE_POLICY)


@router.api_route(DOCS_PATH, methods=["GET", "HEAD"])
async def docs(request: Request) -> Response:
    """Return Swagger UI for this service's OpenAPI document."""
    return _answer(request, request.app.state.api_docs, INDEX, _DOCS_POLICY)


@router.api_route(DOCS_PATH + "/{name}", methods=["GET", "HEAD"])
async def docs_asset(request: Request, name: str) -> Response:
    """Return a script or a style of Swagger UI."""
    return _answer(request, request.app.state.api_docs, name, _DOCS_POLICY)


@router.get("/openapi.json")
def openapi(request: Request) -> Response:
    """Return the API's description; not on the event loop, as making it takes a second, once."""
    with _OPENAPI_LOCK:
        document = request.app.openapi()
    root_path = request.scope.get("root_path", "").rstrip("/")
    servers = {"servers": [{"url": root_path}]} if root_path else {}
    return Response(json.dumps(document | servers), media_type="application/json")


def _page_file(name: str, content: bytes) -> PageFile:
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return PageFile(content, _MEDIA_TYPES[PurePosixPath(name).suffix], etag)


def _answer(request: Request, files: Mapping[str, PageFile], name: str, policy: str) -> Response:
    file = files.get(name)
    if file is None:
        raise HTTPException(404)
    headers = {
        "Cache-Control": _CACHE_CONTROL, "Content-Security-Policy": policy, "ETag": file.etag,
    }  # fmt: skip
    known = request.headers.get("if-none-match", "")
    # Weak comparison: a proxy that packs an answer may have marked its tag as weak.
    if file.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
