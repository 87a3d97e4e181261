"""Reviews: an outside opinion on the best labels of a text, and how much it counts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from longtail.extensions import Command, Extension

if TYPE_CHECKING:  # `longtail --help` does without it
    from pydantic import BaseModel


def _commands() -> Sequence[Command]:
    if not find_spec("longtail.training"):
        return ()
    from longtail.ext.review.command import review

    return (Command("review", review, above="describe"),)


def _reviews(settings: Any, telemetry: Any) -> Any:
    from longtail.ext.review.desk import Reviews

    return Reviews(settings, telemetry.registry)


def _settings() -> type[BaseModel]:
    from longtail.ext.review.settings import ReviewSettings

    return ReviewSettings


EXTENSION = Extension("review", commands=_commands, settings=_settings, reviser=_reviews)
