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
FOREIGN_VARIABLES = frozenset({"LONGTAIL_DATA", "LONGTAIL_DEBUG"})
"""Variables with our prefix that other parts of the project read: tests and benchmarks, and the
command itself, which shows tracebacks where the second is set."""

_FIRST_STEPS = frozenset(
    {"v1", "v2", "page", "docs", "redoc", "openapi.json", "livez", "readyz", "metrics"}
)
"""What the paths of routes begin with."""

Version = Annotated[int, Field(ge=1)] | Literal["current"]
SwapMode = Literal["availability-preserving", "resource-preserving"]


class Settings(BaseSettings):
    """Everything that an operator can choose; see the table in `docs/reference/settings.md`."""

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
    root_path: str = Field("", pattern=r"^(/[A-Za-z0-9._~-]+)*$")
    """Path under which a proxy in front serves this service, such as `/labels`; the proxy may strip
    it from what it passes on, or leave it."""
    max_texts_per_request: int = Field(64, ge=1, le=100_000)
    """Most texts in one request."""
    max_text_characters: int = Field(100_000, ge=1)
    """Most characters in one text."""
    max_body_bytes: int = Field(4 * 1024 * 1024, ge=1024)
    """Most bytes in the body of one request."""
    max_k: int = Field(1000, ge=1)
    """Most labels that a request may ask for a text."""
    max_filter_labels: int = Field(10_000, ge=0)
    """Most label ids that a request may include and exclude by name."""
    max_explained_labels: int = Field(100, ge=0)
    """Most labels that a request may have explained: its `k` times its texts."""
    label_sets: Path | None = None
    """Folder of stored label sets, which requests include or exclude by name: NAME.json, a list of
    ids, or NAME.txt, an id a line."""
    max_batch_tokens: int | None = Field(None, ge=1)
    """Most tokens computed together, padding included; 1024 on CPUs and 16384 on GPUs where
    empty."""
    max_queue_tokens: int = Field(65_536, ge=1)
    """Most tokens of text that may be waiting; more work is refused with 429."""
    request_timeout_s: float = Field(30, gt=0, allow_inf_nan=False)
    """Seconds after which a request without an answer is given up; it may ask for less."""
    max_streams: int = Field(16, ge=1)
    """Most batch streams at a time; further ones are refused with 429."""
    stream_idle_timeout_s: float = Field(60, gt=0, allow_inf_nan=False)
    """Seconds after which a batch stream ends whose client neither sends nor reads."""
    keep_alive_s: int = Field(75, ge=0)
    """Seconds that a connection stays open without a request; longer than a proxy in front keeps
    its own, or else it sends requests over connections that are being closed."""
    read_timeout_s: float = Field(60, gt=0, allow_inf_nan=False)
    """Seconds in which the head of a request, and then its body, must have come whole; streams of
    `/v1/batch` have `stream_idle_timeout_s` instead."""
    precision: Literal["auto", "float32", "bfloat16", "onnx-float32", "onnx-int8"] = "auto"
    """How the encoder computes; `auto`: bfloat16 where the processor or GPU has it. The last two:
    by ONNX Runtime, on the CPU."""
    device: Literal["cpu", "cuda"] | None = None
    """Where the models compute: `cpu` or `cuda` (the first GPU); chosen by itself where empty."""
    num_threads: int | None = Field(None, ge=1)
    """Threads of the compute libraries; chosen by themselves where empty."""
    compute_workers: int | None = Field(None, ge=1)
    """Batches computed at a time, which share these threads; where empty, one a thread, up to 4. On
    GPUs it is one."""
    shutdown_timeout_s: int = Field(30, ge=0)
    """Seconds that requests in flight get to end, after the delay of a stop or before an old model
    makes room for a new one."""
    drain_delay_s: float = Field(5, ge=0, allow_inf_nan=False)
    """Seconds after SIGTERM in which the service is not ready but answers what still comes."""
    registry_source: str = ""
    """URI (fsspec) of a registry whose versions are copied to the registry's folder as needed."""
    watch_interval_s: float = Field(10, ge=0, allow_inf_nan=False)
    """Seconds between looks whether the registry's `current` has moved; 0 never looks."""
    swap_mode: SwapMode = "availability-preserving"
    """Whether a new version is loaded beside the old one (`availability-preserving`) or in its
    place, with answers of 503 meanwhile (`resource-preserving`)."""
    memory_factor: float = Field(2, ge=0, allow_inf_nan=False)
    """Memory that must be free to load a version, as a multiple of its files; 0 checks nothing."""
    canary_version: int | None = Field(None, ge=1)
    """Version that gets a share of the requests that name none."""
    canary_share: float = Field(0, ge=0, le=1)
    """That share."""
    admin_keys: str = Field("", repr=False)
    """Keys for the admin routes: NAME:SHA256, with commas (see `longtail key`)."""
    admin_keys_file: Path | None = None
    """File with more of them, one a line, read again when it changes."""
    api_keys: str = Field("", repr=False)
    """Keys for all other routes but probes, metrics and documentation; without any, all may ask."""
    api_keys_file: Path | None = None
    """File with more of them, one a line, read again when it changes."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins, with commas, whose pages may ask from a browser; `*` for all."""
    language: str = Field("en", pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$", max_length=35)
    """Language of texts and labels (IETF BCP 47), as clients of Annif are told."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log lines that are written."""
    log_format: Literal["text", "json"] = "text"
    """How they are written: for people, or a JSON object each."""
    otel: bool | None = None
    """Whether traces are sent by OpenTelemetry, whose own variables (`OTEL_...`) say where to;
    where empty, if `OTEL_EXPORTER_OTLP_ENDPOINT` is set."""

    @field_validator("root_path")
    @classmethod
    def _is_no_route(cls, value: str) -> str:
        first = value.split("/")[1] if value else ""
        if first in _FIRST_STEPS:
            raise ValueError(
                f"the service has routes of its own under '/{first}', so that a proxy's path can't "
                "be told from them; choose another one"
            )
        return value

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split_origins(cls, value: object) -> object:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(filter(None, map(str.strip, parts))) if isinstance(parts, list) else parts

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
