"""The settings of the service, from the fields of `longtail.service.settings.Settings`."""

from __future__ import annotations

from docs.generation.markdown import code, page, sentence, table
from docs.generation.types import default_of, describe
from longtail.service.settings import PREFIX, Settings

_INTRODUCTION = """\
Which settings does the service have, and what are their defaults?

Each setting is an option of `longtail serve` (`--max-k 100`) and an environment variable (`LONGTAIL_MAX_K=100`).
Options win over variables, variables over defaults.
A value out of bounds stops the start, and so does a variable that begins with `LONGTAIL_` but is no setting.
(`LONGTAIL_DEBUG` and `LONGTAIL_DATA` are no settings of the service but are allowed: the first shows [tracebacks](commands.md), the other tells tests and benchmarks where data sets are.)
Lists are separated by commas.

`uvicorn --factory longtail.service.app:create_app` reads the same variables, but takes host, port, time limits and logging from its own options, and knows neither the drain delay nor the limits of connections."""


def render() -> str:
    """Return the page."""
    rows = [
        (
            f"`{PREFIX}{name.upper()}`",
            code(default_of(field)) or "none",
            describe(field.annotation, tuple(field.metadata)),
            sentence(field.description),
        )
        for name, field in Settings.model_fields.items()
    ]
    headings = ("variable", "default", "values", "meaning")
    return page(
        "Settings of the service", "service/settings.py", _INTRODUCTION, table(headings, rows)
    )
