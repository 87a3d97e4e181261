"""What clients of the service say and hear, without any connection: calls, errors, retries."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NoReturn, TypeAlias, TypedDict, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from longtail.models.errors import LongtailError
from longtail.models.interface.given_texts import texts_of
from longtail.models.names import AimName
from longtail.service.schemas.batch import BatchSummary
from longtail.service.schemas.feedback import FeedbackReceipts
from longtail.service.schemas.labels import LabelDetail, LabelList
from longtail.service.schemas.models import Health, ModelChange, ModelList
from longtail.service.schemas.predict import PredictResponse
from longtail.service.schemas.problem import Problem

T = TypeVar("T", bound=BaseModel)

Version: TypeAlias = int | Literal["current"]

AGAIN = frozenset({429, 503})
"""Statuses that ask to come back."""
_NO_KEY = 401
_LAST = 2**53
"""Behind the `sequence` of all feedback."""
_MAX_DETAIL_CHARACTERS = 500
_chance = random.SystemRandom()


class PredictOptions(TypedDict, total=False):
    """What to answer about texts; see `longtail.service.schemas.base.Options`."""

    k: int
    scorer: str
    threshold: float
    correction: Literal["none", "prior", "tree"]
    tail_dial: float
    aim: AimName
    include: Sequence[str]
    exclude: Sequence[str]
    include_set: str
    exclude_set: str
    explain: bool
    version: Version


class RequestOptions(PredictOptions, total=False):
    """What to answer about the texts of one request, and how soon."""

    timeout_s: float


class ClientError(LongtailError):
    """Base of what a client raises."""


class ConnectionFailedError(ClientError):
    """The service can't be reached, or the connection broke."""


class NoAnswerError(ClientError):
    """The service took a request and did not answer in time; it is not asked again."""


class ProblemError(ClientError):
    """The service answered with a problem.

    Attributes:
        problem: Its document; compare `problem.type`.
        retry_after_s: Seconds after which to come back, where the service says so.
    """

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        super().__init__(f"{problem.status} {problem.title}: {problem.detail}")
        self.problem = problem
        self.retry_after_s = retry_after_s


class IncompleteBatchError(ClientError):
    """A batch ended before all of its lines were answered; send those again that were not.

    Attributes:
        summary: What the service said at the end; None where it said nothing.
    """

    def __init__(self, summary: BatchSummary | None) -> None:
        why = "the answer breaks off" if summary is None else "the service gave it up"
        if summary is not None and summary.error is not None:
            why = f"{summary.error.title}: {summary.error.detail}"
        super().__init__(f"the batch is not complete: {why}; send again the lines without answers")
        self.summary = summary


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and for how long, a client comes back after 429, 503 or a broken connection.

    Attributes:
        max_attempts: Times that a call is tried.
        max_wait_s: Seconds that a call waits between attempts, all together; where the service
            asks for more, its error is raised at once.
        first_wait_s: Wait after the first attempt where the service names none; doubles each time.
        jitter: Part of a wait, at most, that is added to it by chance, so that many clients do not
            come back together.
    """

    max_attempts: int = 5
    max_wait_s: float = 60.0
    first_wait_s: float = 0.25
    jitter: float = 0.5

    def wait_s(self, attempt: int, waited_s: float, error: ClientError) -> float | None:
        """Return the seconds to wait before the next attempt; None where there is none.

        Args:
            attempt: Number of the one that failed, from 1.
            waited_s: Seconds that were waited before it.
            error: How it failed.
        """
        asked = None
        if isinstance(error, ProblemError) and error.problem.status in AGAIN:
            asked = error.retry_after_s
        elif not isinstance(error, ConnectionFailedError):
            return None
        wait_s = self.first_wait_s * 2 ** (attempt - 1) if asked is None else asked
        wait_s *= 1 + self.jitter * _chance.random()
        is_over = attempt >= self.max_attempts or waited_s + wait_s > self.max_wait_s
        return None if is_over else wait_s


NEVER = Retry(max_attempts=1)


class Attempts:
    """The attempts at one call."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self._num_failed = 0
        self._waited_s = 0.0

    def wait_after(self, error: ClientError) -> float:
        """Return the seconds to wait before the next attempt, after one that failed so.

        Raises:
            ClientError: The same, where there is none.
        """
        self._num_failed += 1
        wait_s = self._retry.wait_s(self._num_failed, self._waited_s, error)
        if wait_s is None:
            raise error
        self._waited_s += wait_s
        return wait_s


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and what its answer is.

    Attributes:
        method: Of HTTP.
        path: Below the service's URL.
        answer: The shape of the answer.
        content: JSON to send; None: no body.
        query: Parameters of the URL; None ones are left out.
        is_slow: Whether the answer may take as long as it takes to load a model.
    """

    method: str
    path: str
    answer: type[T]
    content: Mapping[str, Any] | None = None
    query: Mapping[str, str | int | None] = field(default_factory=dict)
    is_slow: bool = False

    def read(self, response: httpx.Response) -> T:
        """Return what an answer says.

        Raises:
            ProblemError: It is a problem.
            ClientError: It is not what this release knows.
        """
        if not response.is_success:
            raise_problem(response.status_code, response.headers, response.content)
        return read_as(self.answer, response.content)


def predict(texts: str | Sequence[str], options: Mapping[str, Any]) -> Call[PredictResponse]:
    """Ask for the labels of one text or several.

    Raises:
        RequestError: They are not texts with words in them.
    """
    if isinstance(texts, str):
        given: dict[str, Any] = {"text": texts_of([texts])[0]}
    else:
        given = {"texts": list(texts_of(texts))}
    return Call("POST", "/v1/predict", PredictResponse, {**given, **options})


def models() -> Call[ModelList]:
    """Ask for all versions."""
    return Call("GET", "/v1/models", ModelList)


def labels(query: str, limit: int, offset: int, version: Version | None) -> Call[LabelList]:
    """Search the labels."""
    asked: dict[str, str | int | None] = {
        "query": query,
        "limit": limit,
        "offset": offset,
        "version": version,
    }
    return Call("GET", "/v1/labels", LabelList, query=asked)


def label(label_id: str, version: Version | None) -> Call[LabelDetail]:
    """Ask for all that is known of a label."""
    # As a parameter, because proxies decode and merge the slashes of an id in the path.
    return Call("GET", "/v1/labels", LabelDetail, query={"id": label_id, "version": version})


def give_feedback(entries: Sequence[Mapping[str, Any]]) -> Call[FeedbackReceipts]:
    """Say which labels are right; entries without an id get one, so that none is stored twice."""
    content = {"entries": [{"id": f"client-{secrets.token_hex(16)}", **x} for x in entries]}
    return Call("POST", "/v1/feedback", FeedbackReceipts, content)


def ready() -> Call[Health]:
    """Ask whether the service can predict."""
    return Call("GET", "/readyz", Health)


def change_model(version: int, action: Literal["load", "unload", "activate"]) -> Call[ModelChange]:
    """Ask to load, unload or activate a version."""
    return Call("POST", f"/v1/admin/models/{version}/{action}", ModelChange, is_slow=True)


class Exposition(BaseModel):
    """The metrics, as Prometheus reads them."""

    text: str


class MetricsCall(Call[Exposition]):
    """Asks for the metrics, which are no JSON."""

    def read(self, response: httpx.Response) -> Exposition:
        """Return what an answer says.

        Raises:
            ProblemError: It is a problem.
        """
        if not response.is_success:
            raise_problem(response.status_code, response.headers, response.content)
        return Exposition(text=response.text)


def metrics() -> MetricsCall:
    """Ask for the metrics."""
    return MetricsCall("GET", "/metrics", Exposition)


class AccessCheck(Call[Exposition]):
    """Asks for what needs an admin key and changes nothing: feedback after all that there is."""

    def read(self, response: httpx.Response) -> Exposition:
        """Return nothing, where the key lets in; that feedback is off or fails is no matter.

        Raises:
            ProblemError: There is no such key, or the admin routes are off.
        """
        is_off = "admin-off" in response.text
        if response.status_code == _NO_KEY or is_off:
            raise_problem(response.status_code, response.headers, response.content)
        return Exposition(text="")


def check_access() -> AccessCheck:
    """Ask whether the key lets in to the admin routes."""
    return AccessCheck("GET", "/v1/admin/feedback", Exposition, query={"after": _LAST, "limit": 1})


def rollback() -> Call[ModelChange]:
    """Ask to go back to the version before."""
    return Call("POST", "/v1/admin/rollback", ModelChange, is_slow=True)


def set_canary(version: int, share: float) -> Call[ModelChange]:
    """Ask to give a version a share of the traffic."""
    content = {"version": version, "share": share}
    return Call("PUT", "/v1/admin/canary", ModelChange, content, is_slow=True)


def end_canary() -> Call[ModelChange]:
    """Ask to end the canary."""
    return Call("DELETE", "/v1/admin/canary", ModelChange, is_slow=True)


def http_error(url: httpx.URL, error: httpx.TransportError) -> ClientError:
    """Return our error for one of the HTTP library."""
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return NoAnswerError(f"{url} took a request and did not answer in time ({error!r})")
    return ConnectionFailedError(f"{url} gives no answer ({error!r}); is the service up?")


def read_as(shape: type[T], content: bytes | Mapping[str, Any]) -> T:
    """Return an answer in its shape; fields that a newer service adds are left out.

    Raises:
        ClientError: It has another shape.
    """
    try:
        if isinstance(content, bytes):
            return shape.model_validate_json(content, extra="ignore")
        return shape.model_validate(content, extra="ignore")
    except ValidationError as error:
        raise ClientError(
            f"the answer is no {shape.__name__} as this release of the client knows it ({error}); "
            "is the URL that of a Longtail service?"
        ) from error


def raise_problem(status: int, headers: Mapping[str, str], content: bytes) -> NoReturn:
    """Raise what an answer says that is a problem, or comes from some proxy.

    Args:
        status: Of HTTP.
        headers: By names that are looked up in lower case.
        content: The body.

    Raises:
        ProblemError: In any case.
    """
    try:
        problem = Problem.model_validate_json(content, extra="ignore")
    except ValidationError:
        detail = content[:_MAX_DETAIL_CHARACTERS].decode(errors="replace")
        problem = Problem(
            type="about:blank", title="Not answered by Longtail", status=status, detail=detail
        )
    after = headers.get("retry-after", "")
    raise ProblemError(problem, float(after) if after.isdecimal() else None)
