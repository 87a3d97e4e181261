"""Answers about model versions and their changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field

from longtail.models.options import AimName, VersionNumber
from longtail.service.schemas.base import Answer, Asked


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
    """Retired ones among them."""
    retired_label_count: int | None
    """Labels that changes of the vocabulary have taken out of use."""
    scorers: list[str]
    waiting_scorers: list[str]
    """Scorers whose encoder is loaded when a request first needs it."""
    default_scorer: str | None
    corrections: dict[str, list[Literal["none", "prior", "tree"]]]
    """The corrections that each scorer offers, its default first."""
    aims: dict[str, list[AimName]]
    """The aims that each scorer offers, the default first."""
    thresholds: dict[str, float]
    """The probability from which a scorer's labels are best taken for right, for scorers with one;
    it had the best micro-F1 on the documents that were kept for it."""
    promises: dict[str, list[str]]
    """The names of the promises by which `accept` marks a scorer's labels, for scorers with any,
    the default first; empty too where the version is not loaded."""
    example: str | None
    """A text to try the version on: the first warm-up text of its bundle; null where it has none,
    as one of confidential documents, or is not loaded."""
    languages: list[str]
    """The languages in which labels have names, where the vocabulary tells them; empty too where
    the version is not loaded."""
    has_hierarchy: bool
    """Whether any label is below another one; false too where the version is not loaded."""
    has_label_quality: bool
    """Whether labels have `quality` (`GET /v1/labels`); false too where the version is not
    loaded."""
    metrics: dict[str, Any]
    """As measured after training; empty where nothing was measured."""
    held_out_documents: int | None
    """How many training documents stood for the dev split that the corpus lacks; null where it has
    one, or where nothing was measured."""
    problem: str | None
    """Why the version can't be read, if so; the fields about its content are then empty."""
    state: Literal["loaded", "loading", "draining", "failed", "not-loaded"]
    """`draining`: it takes no new requests, but has unfinished ones."""
    traffic_share: float
    """Its share of the requests that name no version."""
    load_problem: str | None
    """Why the last attempt to load it failed, if it did."""


class ServiceLimits(Answer):
    """The limits of one request; what exceeds them is refused with 422."""

    max_k: int
    """Labels per text."""
    max_texts: int
    max_text_characters: int
    """Characters (Unicode code points) of one text."""
    max_explained_labels: int
    """Labels to explain: `k` times the texts."""
    max_queue_tokens: int
    """Tokens of all requests that may wait; requests beyond that are refused with 429."""


class IndexState(Answer):
    """What searches the label vectors of a scorer (`LONGTAIL_INDEX`)."""

    index: Literal["faiss", "torch"]
    speedup: float | None
    """How many times as long the other one took on these vectors when they were loaded; null where
    it was not tried."""


class Runtime(Answer):
    """How the service computes; numbers of threads are those of each library in one worker."""

    device: str | None
    """`cpu` or `cuda`; null until a model is loaded."""
    encoder_precision: str | None
    """Number format of the default model's encoder; null where the model has no encoder."""
    max_batch_tokens: int | None
    """Tokens computed together, padding included; null until a model is loaded."""
    compute_workers: int
    """Batches computed at a time."""
    torch_threads: int | None
    """Threads of PyTorch; null, like all below, where the service runs without these libraries."""
    faiss_threads: int | None
    """Threads of FAISS; null where it is not installed."""
    tokeniser_threads: int | None
    """Threads of the tokeniser."""
    torch_version: str | None
    """Release of PyTorch."""
    faiss_version: str | None
    """Release of FAISS."""
    indexes: dict[str, IndexState]
    """What searches the label vectors of the default model, by scorer; only of scorers that have
    some."""


class FeedbackState(Answer):
    """Whether the service keeps feedback."""

    enabled: bool
    """Whether `POST /v1/feedback` takes entries."""
    keeps_texts: bool
    """Whether texts are kept with them, and not only their SHA-256."""
    max_entries: int
    """Entries in one request."""


class ModelList(Answer):
    """What the registry holds and the service has loaded."""

    models: list[ModelSummary]
    """In rising order of version."""
    problem: str | None
    """Why the service can't follow the registry's `current` at the moment, if so."""
    limits: ServiceLimits
    runtime: Runtime
    feedback: FeedbackState


class CanaryRequest(Asked):
    """A version to try, and on how much of the traffic."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"version": 2, "share": 0.1}]})

    version: VersionNumber
    """Number of the version; it is loaded if necessary."""
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
    """Duration of the change."""


class Health(Answer):
    """The answer of a health check that succeeded."""

    status: Literal["alive", "ready", "degraded"]
    waiting_scorers: Sequence[str] = ()
    """Scorers of the default version that wait for their encoder; none before it is ready."""
