"""The settings of the service: read once from options and `LONGTAIL_` variables, then frozen."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from models.errors import ConfigError

PREFIX = "LONGTAIL_"
FOREIGN_VARIABLES = frozenset({"LONGTAIL_DATA"})
"""Variables with our prefix that other parts of the project read: here, tests and benchmarks."""

Version = Annotated[int, Field(ge=1)] | Literal["current"]


class Settings(BaseSettings):
    """Everything that an operator can choose; see the table in `service/README.md`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    registry: Path = Path("registry")
    """Folder of the bundle registry."""
    versions: Annotated[tuple[Version, ...], NoDecode] = Field(("current",), min_length=1)
    """Versions to load, numbers or `current`, separated by commas; the first answers requests
    that name none."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all."""
    port: int = Field(8000, ge=0, le=65535)
    """TCP port to listen on; 0 takes a free one."""
    max_texts_per_request: int = Field(64, ge=1, le=100_000)
    """Most texts in one request."""
    max_text_characters: int = Field(100_000, ge=1)
    """Most characters in one text."""
    max_body_bytes: int = Field(4 * 1024 * 1024, ge=1024)
    """Most bytes in the body of one request."""
    max_k: int = Field(1000, ge=1)
    """Most labels that a request may ask for a text."""
    device: Literal["cpu", "cuda"] | None = None
    """Where the models compute: `cpu` or `cuda` (the first GPU); chosen by itself where empty."""
    num_threads: int | None = Field(None, ge=1)
    """Threads of the compute libraries; chosen by themselves where empty."""
    shutdown_timeout_s: int = Field(30, ge=0)
    """Seconds that requests in flight get to end after SIGTERM."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log lines that are written."""

    @field_validator("versions", mode="before")
    @classmethod
    def _split_versions(cls, value: object) -> object:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            return parts
        return tuple(_number_or_name(part) for part in parts)


def load_settings(**chosen: Any) -> Settings:
    """Return the settings: values chosen here win over `LONGTAIL_` variables, those over defaults.

    Raises:
        ConfigError: A value is out of bounds, or a `LONGTAIL_` variable is not a setting.
    """
    refuse_unknown_variables(os.environ)
    try:
        return Settings(**chosen)
    except ValidationError as error:
        raise ConfigError(_describe(error, chosen)) from error


def refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    """Stop at a misspelt variable, which pydantic-settings would silently ignore.

    Raises:
        ConfigError: A variable has our prefix but is no setting; names the closest one that is.
    """
    known = {PREFIX + name.upper() for name in Settings.model_fields} | FOREIGN_VARIABLES
    for variable in sorted(environ):
        if variable.upper().startswith(PREFIX) and variable.upper() not in known:
            closest = difflib.get_close_matches(variable.upper(), sorted(known), n=1, cutoff=0)[0]
            raise ConfigError(
                f"environment variable {variable!r} is not a setting; did you mean {closest!r}? "
                "Rename or unset it"
            )


def _number_or_name(part: object) -> object:
    text = part.strip() if isinstance(part, str) else part
    return int(text) if isinstance(text, str) and text.isdecimal() else text


def _describe(error: ValidationError, chosen: Mapping[str, object]) -> str:
    problems = []
    for problem in error.errors(include_url=False):
        name = str(problem["loc"][0])
        option, variable = f"--{name.replace('_', '-')}", PREFIX + name.upper()
        source = option if name in chosen else variable
        problems.append(f"{source}: got {problem['input']!r}; {problem['msg']}")
    return "settings: " + "; ".join(dict.fromkeys(problems))
