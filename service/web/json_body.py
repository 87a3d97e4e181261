"""JSON bodies validated straight from their bytes, without Python objects in between."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from service.wire.json_text import in_utf_8

Model = TypeVar("Model", bound=BaseModel)


def parse_json_body(content: bytes, model: type[Model]) -> Model:
    """Return what a body says.

    Errors are those that FastAPI gives for a parameter of this model.

    Args:
        content: The whole body.
        model: What it must be.

    Raises:
        RequestValidationError: It is not as the model wants it, or not JSON.
        HTTPException: With status 400, where it is not Unicode.
        KindError: It is in UTF-16 or UTF-32.
    """
    content = in_utf_8(content)
    if not content:
        missing = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
        raise RequestValidationError([missing])
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        if errors[0]["type"] == "json_invalid":
            # Half of a surrogate pair, for one: it is JSON all the same, and the model refuses it.
            return _parse_slowly(content, model)
        raise RequestValidationError(_in_body(error)) from error


def _parse_slowly(content: bytes, model: type[Model]) -> Model:
    """Return what a body says that pydantic's own reader of JSON refuses.

    Raises:
        RequestValidationError: As `parse_json_body` does.
        HTTPException: As there.
    """
    try:
        parsed = json.loads(content)
    except json.JSONDecodeError as error:
        raise RequestValidationError(
            [{"type": "json_invalid", "loc": ("body", error.pos), "msg": error.msg, "input": {}}]
        ) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400) from error
    try:
        return model.model_validate(parsed)
    except ValidationError as error:
        raise RequestValidationError(_in_body(error)) from error


def _in_body(error: ValidationError) -> list[dict[str, Any]]:
    """Return the errors of a model as those of a body."""
    errors = error.errors(include_url=False)
    return [{**each, "loc": ("body", *each["loc"])} for each in errors]


def checked(model: type[Model], **fields: object) -> Model:
    """Return a model of fields that a request of another form gives.

    Raises:
        RequestValidationError: They are not as the model wants them.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(_in_body(error)) from error
