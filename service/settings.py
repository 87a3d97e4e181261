"""The settings of the service: read once from options and `LONGTAIL_` variables, then frozen."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from longtail.extensions import extensions
from longtail.models.errors import ConfigError
from longtail.models.files.typed_json import problem_in_words

PREFIX = "LONGTAIL_"
FOREIGN_VARIABLES = frozenset(
    {"LONGTAIL_DATA", "LONGTAIL_DEBUG", "LONGTAIL_SANITIZE", "LONGTAIL_STRICT"}
)
"""Variables with our prefix that other parts of the project read: tests, benchmarks, the build of
the kernels, and the command itself, which shows tracebacks with LONGTAIL_DEBUG."""

_FIRST_STEPS = frozenset(
    {"v1", "page", "docs", "redoc", "openapi.json", "livez", "readyz", "metrics"}
)
"""What the paths of routes begin with."""

_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\*")
Version = Annotated[int, Field(ge=1)] | Literal["current"]
SwapMode = Literal["availability-preserving", "resource-preserving"]


_UNSET = "unset"
"""Description of a setting that has no value, other than "none"."""
_automatic: Any = {_UNSET: "automatic"}
_by_device: Any = {_UNSET: "by the device"}


class Settings(BaseSettings):
    """Everything that an operator can choose.

    A field is all that is written of a setting: options of `longtail serve`, variables and the page
    `docs/reference/settings.md` are made from it (see `describe_settings`). The first sentence of
    its docstring is the help text of the option.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    registry: Path = Path("registry")
    """Folder of the registry."""
    versions: Annotated[tuple[Version, ...], NoDecode] = Field(("current",), min_length=1)
    """Versions to load: numbers or `current`, separated by commas. The first answers requests that
    name none."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all."""
    port: int = Field(8000, ge=0, le=65535)
    """TCP port to listen on; 0 takes a free one."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Names by which clients reach this service, separated by commas. `*.example.org` stands for
    all below a domain, `*` for all names. Requests to other names are refused with 421, so that no
    page of another site can use the service by a name that resolves to it. IP addresses are always
    allowed, and so are names without a dot and names below `localhost`, `internal`, `svc` and
    `cluster.local`. Where `api_keys` or `api_keys_file` is set, all names are allowed."""
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = ()
    """Addresses or networks of proxies in front, separated by commas. Their header
    `X-Forwarded-For` says who the client is; that of other senders is ignored. Where no key is
    required, clients are distinguished by their addresses, and none may take the whole queue."""
    root_path: str = Field("", pattern=r"^(/[A-Za-z0-9._~-]+)*$")
    """Path under which a proxy in front serves this service, such as `/labels`. It is used for
    redirects and for the documentation; the proxy may strip it from the requests that it passes on,
    or leave it, and health checks may leave it out."""
    max_texts_per_request: int = Field(64, ge=1, le=100_000)
    """Most texts in one request."""
    max_text_characters: int = Field(100_000, ge=1)
    """Most characters in one text."""
    max_body_bytes: int = Field(4 * 1024 * 1024, ge=1024)
    """Most bytes in the body of one request."""
    max_k: int = Field(1000, ge=1)
    """Most labels that a request may ask for per text."""
    label_sets: Path | None = None
    """Folder of stored label sets. Requests include or exclude them by name; a set is NAME.json, a
    list of ids, or NAME.txt, one id per line."""
    max_batch_tokens: int | None = Field(None, ge=1, json_schema_extra=_by_device)
    """Most tokens computed together, padding included. 1024 on CPUs and 16384 on GPUs where it is
    not set."""
    max_queue_tokens: int = Field(65_536, ge=1)
    """Most tokens of text that may wait. More work is refused with 429."""
    request_timeout_s: float = Field(30, gt=0, allow_inf_nan=False)
    """Seconds after which an unanswered request is given up. A request may ask for less."""
    keep_alive_s: int = Field(75, ge=0)
    """Seconds that an idle connection stays open. It must be longer than a proxy in front keeps its
    own (60 in most), or else the proxy sends requests over connections that are being closed."""
    max_connections: int = Field(512, ge=10)
    """Most open connections. Beyond them, the one whose client has been silent for longest is
    closed, unless its request is being answered."""
    read_timeout_s: float = Field(60, gt=0, allow_inf_nan=False)
    """Seconds within which a request's head, and then its body, must arrive. A late body is
    answered with 408; a connection with half a head, or none, is closed. A client that reads
    nothing of its answer for as long is aborted."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the encoder's computations. `auto` is bfloat16 where the processor or GPU
    has it, else float32."""
    device: Literal["cpu", "cuda"] | None = Field(None, json_schema_extra=_automatic)
    """Where the models compute; `cuda` is the first GPU."""
    index: Literal["auto", "faiss", "torch"] = "auto"
    """What searches label vectors. `auto` times both on the loaded ones and takes the faster, or
    `torch` where FAISS is not installed; answers are the same. On a CPU FAISS took 2.4 to 2.8 times
    as long as a matrix product over 100,000 vectors."""
    num_threads: int | None = Field(None, ge=1, json_schema_extra=_automatic)
    """Threads of the compute libraries."""
    compute_niceness: int = Field(2, ge=0, le=19)
    """Niceness of the compute threads on Linux, beyond that of the process. Above 0, health checks
    are answered before texts; but beside other processes on the same cores, each step takes about
    a fifth off what the compute threads get."""
    shutdown_timeout_s: int = Field(30, ge=0)
    """Seconds that requests in flight get to finish. They begin at a stop, after `drain_delay_s`,
    and before an old model makes room for a new one (`resource-preserving`)."""
    drain_delay_s: float = Field(5, ge=0, allow_inf_nan=False)
    """Seconds after SIGTERM in which requests are still answered. The service is not ready in that
    time, so that load balancers stop sending to it."""
    registry_source: str = ""
    """URI (fsspec) of a registry to copy versions from, as they are needed."""
    watch_interval_s: float = Field(10, ge=0, allow_inf_nan=False)
    """Seconds between checks whether `current` has moved; 0 never checks."""
    swap_mode: SwapMode = "availability-preserving"
    """How a new version replaces the old one. It is loaded beside it (`availability-preserving`),
    or in its place, with answers of 503 meanwhile (`resource-preserving`)."""
    memory_factor: float = Field(2, ge=0, allow_inf_nan=False)
    """Free memory needed to load a version, as a multiple of its files; 0 checks nothing."""
    map_arrays: Literal["auto", "always", "never"] = "auto"
    """Whether large arrays stay in their files, once in memory for all processes. A file that is
    cut short in place then ends the process; so `auto` copies those that other users can write
    to."""
    preload: bool = False
    """Whether an encoder that the default scorer does not need is loaded at the start. Otherwise a
    request loads it that needs it, as explanations and details of labels do."""
    canary_version: int | None = Field(None, ge=1)
    """Version that gets a share of the requests that name none."""
    canary_share: float = Field(0, ge=0, le=1)
    """Share of those requests that the canary version gets."""
    admin_keys: str = Field("", repr=False)
    """Keys for the admin routes: NAME:SHA256, separated by commas. `longtail key` makes them;
    without any, the admin routes refuse every request."""
    admin_keys_file: Path | None = None
    """File of admin keys, one per line. It is read again when it changes."""
    api_keys: str = Field("", repr=False)
    """Keys for all other routes: NAME:SHA256, separated by commas. Health checks, metrics and
    documentation need none; without any key, every client is answered."""
    api_keys_file: Path | None = None
    """File of such keys, one per line. It is read again when it changes."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins whose pages may send requests from a browser, separated by commas; `*` for all."""
    language: str | None = Field(None, pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$", max_length=35)
    """Language of texts and labels (IETF BCP 47) in answers to clients of Annif. Where it is not
    set, the model's: that of the names of most labels, else the first one of its texts, else en."""
    feedback: Path | None = None
    """Folder that keeps what people say of labels (`POST /v1/feedback`). Feedback is off where it
    is not set. The folder must be on a disk of this machine, not on a network file system."""
    feedback_texts: bool = False
    """Whether texts are kept with the feedback; otherwise their SHA-256 is. A short text can be
    guessed from that."""
    max_feedback_bytes: int = Field(4 * 1024**3, ge=64 * 1024)
    """Most bytes of the SQLite database of feedback. What exceeds them is refused with 503."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log lines that are written."""
    log_format: Literal["text", "json"] = "text"
    """Form of the log lines. They are text for people, or one JSON object each."""

    @field_validator("root_path")
    @classmethod
    def _is_no_route(cls, value: str) -> str:
        first = value.split("/")[1] if value else ""
        added = {x.paths.prefix.split("/")[1] for x in extensions() if x.paths is not None}
        if first in _FIRST_STEPS | added:
            raise ValueError(
                f"got {value!r}; the service has routes of its own under '/{first}', from which a "
                "proxy's path could not be distinguished; choose another one"
            )
        return value

    @field_validator("feedback", mode="before")
    @classmethod
    def _or_none(cls, value: object) -> object:
        return value or None

    @field_validator("allowed_hosts", "cors_origins", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(filter(None, map(str.strip, parts))) if isinstance(parts, list) else parts

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _HOST_NAME.fullmatch(name):
                raise ValueError(
                    f"got {name!r}; expected a name such as 'labels.example.org', without scheme, "
                    "port and path, '*.example.org', or '*'"
                )
        return tuple(name.lower() for name in value)

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in value:
            ip_network(proxy)  # its message names what it got
        return value

    @field_validator("versions", mode="before")
    @classmethod
    def _split_versions(cls, value: object) -> object:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            return parts
        names = [str(part).strip() for part in parts]
        if wrong := [x for x in names if x != "current" and not (x.isdecimal() and int(x))]:
            raise ValueError(
                f"got {wrong[0]!r}; expected numbers from 1, or 'current', separated by commas"
            )
        return tuple(int(x) if x.isdecimal() else x for x in names)


@dataclass(frozen=True, slots=True)
class SettingDescription:
    """Documentation of a setting.

    Attributes:
        name: The field's name.
        kind: Type of one value: int, float, bool, str or Path; a list is one str, with commas.
        help: In a sentence.
        details: Further sentences; empty where there are none.
        choices: The values that it may have; empty where they are too many to name.
        bounds: Bounds of a number, in words; empty where there are none.
        default: In words.
    """

    name: str
    kind: type
    help: str
    details: str
    choices: tuple[str, ...]
    bounds: str
    default: str

    @property
    def option(self) -> str:
        """The option of `longtail serve`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return PREFIX + self.name.upper()


def describe_settings() -> list[SettingDescription]:
    """Return the documentation of each setting, in the order of the fields."""
    properties = Settings.model_json_schema()["properties"]
    return [_description(name, schema) for name, schema in properties.items()]


_KINDS = {
    ("integer", None): int,
    ("number", None): float,
    ("boolean", None): bool,
    ("string", "path"): Path,
}


def _description(name: str, schema: Mapping[str, Any]) -> SettingDescription:
    value = schema | schema.get("anyOf", [{}])[0]  # the other is null
    text, _, details = " ".join(schema["description"].split()).partition(". ")
    default = schema["default"]
    words = ",".join(default) if isinstance(default, list) else default
    return SettingDescription(
        name=name,
        kind=_KINDS.get((value["type"], value.get("format")), str),
        help=text.removesuffix(".") + ".",
        details=details,
        choices=tuple(value.get("enum", ())),
        bounds=_bounds(value),
        default=schema.get(_UNSET, "none") if words in {None, ""} else f"{words}",
    )


def _bounds(schema: Mapping[str, Any]) -> str:
    lower, upper = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return f"more than {schema['exclusiveMinimum']:g}"
    if upper is not None:
        return f"{lower} to {upper}"
    return "" if lower is None else f"at least {lower}"


def load_settings(**chosen: Any) -> Settings:
    """Return the settings: chosen values win over `LONGTAIL_` variables, those over defaults."""
    refuse_unknown_variables(os.environ)
    try:
        return Settings(**chosen)
    except ValidationError as error:
        raise ConfigError(_describe(error, chosen)) from error


def refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    """Stop at a misspelt variable, which pydantic-settings would silently ignore."""
    known = {PREFIX + name.upper() for name in Settings.model_fields} | FOREIGN_VARIABLES
    for variable in sorted(environ):
        if variable.upper().startswith(PREFIX) and variable.upper() not in known:
            closest = difflib.get_close_matches(variable.upper(), sorted(known), n=1, cutoff=0)[0]
            raise ConfigError(
                f"environment variable {variable!r} is not a setting; did you mean {closest!r}? "
                "Rename or unset it"
            )


def _describe(error: ValidationError, chosen: Mapping[str, object]) -> str:
    problems = []
    for problem in error.errors(include_url=False):
        name = str(problem["loc"][0])
        option, variable = f"--{name.replace('_', '-')}", PREFIX + name.upper()
        source = option if name in chosen else variable
        problems.append(f"{source}: {problem_in_words(problem, repr)}")
    return "settings: " + "; ".join(dict.fromkeys(problems))
