"""What routes are given: the parts of the running service, found through the request."""

from __future__ import annotations

import email.message
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from service.engine import Engine
from service.manager import ModelManager
from service.settings import Settings
from service.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of one running service."""

    settings: Settings
    manager: ModelManager
    engine: Engine
    telemetry: Telemetry


def service_of(request: Request) -> Service:
    """Return the service that this request came to."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def require_json(request: Request) -> None:
    """Refuse a body of another media type, such as curl sends where no header is given.

    Raises:
        HTTPException: With status 415.
    """
    message = email.message.Message()
    message["content-type"] = request.headers.get("content-type", "")
    if message.get_content_type() != "application/json":
        raise HTTPException(415, "Send the body with the header 'Content-Type: application/json'")


ServiceDep = Annotated[Service, Depends(service_of)]
