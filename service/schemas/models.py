"""Answers about model versions and their changes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

from service.schemas.base import Answer, VersionNumber


class ModelSummary(Answer):
    """One version of the registry."""

    version: int
    loaded: bool
    """Whether requests can name this version."""
    default: bool
    """Whether this version answers requests that name none."""
    current: bool
    """Whether the registry's alias `current` points to this version now."""
    published_at: str | None
    """ISO 8601, UTC."""
    digest: str | None
    label_count: int | None
    scorers: list[str]
    default_scorer: str | None
    corrections: dict[str, list[Literal["none", "prior", "tree"]]]
    """Of each scorer, what its scores can be corrected with; what holds where a request says
    nothing comes first."""
    metrics: dict[str, Any]
    """As measured after training; empty where it was not."""
    problem: str | None
    """Why the version can't be read, if so; the fields about its content are then empty."""
    state: Literal["loaded", "loading", "draining", "failed", "not-loaded"]
    """`draining`: it answers no new requests, but has not ended those that it had."""
    traffic_share: float
    """Share of the requests naming no version that it gets."""
    load_problem: str | None
    """Why it could not be loaded when it was last tried, if so."""


class ServiceLimits(Answer):
    """What one request may ask for; more is refused with 422."""

    max_k: int
    """Labels of each text."""
    max_texts: int
    max_text_characters: int
    """Characters (Unicode code points) of one text."""
    max_explained_labels: int
    """Labels to explain: `k` times the texts."""
    max_queue_tokens: int
    """Tokens that may wait, of all requests together, before more are refused with 429."""


class Runtime(Answer):
    """What the service computes with; numbers of threads are those of each library in a worker."""

    device: str | None
    """`cpu` or `cuda`; null as long as no model is loaded."""
    encoder_precision: str | None
    """What the encoder of the default model computes in; null where it has none."""
    max_batch_tokens: int | None
    """Tokens computed together, padding included; null as long as no model is loaded."""
    compute_workers: int
    """Batches computed at a time."""
    torch_threads: int | None
    """Of PyTorch; null, like all below, where the service was started without these libraries."""
    faiss_threads: int | None
    """Of FAISS."""
    tokeniser_threads: int | None
    """Of the tokeniser."""
    torch_version: str | None
    """Release of PyTorch."""
    faiss_version: str | None
    """Release of FAISS."""


class ModelList(Answer):
    """What the registry holds and the service has loaded."""

    models: list[ModelSummary]
    """In rising order of version."""
    problem: str | None
    """Why the registry's `current` can't be followed at the moment, if so."""
    limits: ServiceLimits
    runtime: Runtime


class CanaryRequest(BaseModel):
    """A version to try, and on how much of the traffic."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [{"version": 2, "share": 0.1}]},
    )

    version: VersionNumber
    """Number of the version; it is loaded if need be."""
    share: float = Field(ge=0, le=1, allow_inf_nan=False)
    """Share of the requests that name no version."""


class ModelChange(Answer):
    """What is served after a change."""

    default: int
    """The version that answers requests that name none."""
    current: int | None
    """The version that answers requests that name `current`."""
    loaded: list[int]
    """All versions that requests can name."""
    canary: CanaryRequest | None
    seconds: float
    """How long the change took."""


class Health(Answer):
    """That a probe succeeded."""

    status: Literal["alive", "ready"]
