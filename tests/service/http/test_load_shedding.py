"""Refused before anything is read: no body, no log line, but all that a client can use."""

from contextlib import ExitStack

import pytest

from longtail.service.http import limits
from longtail.service.wire.problems import problem_of

JSON = {"content-type": "application/json"}
PATHS = [
    "/v1/predict", "/v1/batch", "/v2/models/longtail/infer", "/v2/models/longtail/versions/2/infer",
    "/v1/projects/v2-retrieval/suggest", "/v1/projects/v2-retrieval/suggest-batch",
]  # fmt: skip


@pytest.fixture
def full(open_client):
    """Start a service that has no room."""
    with ExitStack() as stack:

        def start(**settings):
            client = stack.enter_context(open_client(max_queue_tokens=10, **settings))
            admission = client.app.state.service.engine.admission
            stack.enter_context(admission.admit(10, 30))
            return client

        yield start


class NeverRead:
    """The body of a request that must not be read."""

    def __iter__(self):
        return self

    def __next__(self):
        pytest.fail("the body was read")


@pytest.mark.parametrize("path", PATHS)
def test_whatever_asks_for_work_is_refused_unread(full, path):
    client = full()
    answer = client.post(path, content=NeverRead(), headers=JSON | {"X-Request-ID": "mine"})
    assert answer.status_code == 429
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.headers["retry-after"], answer.headers["x-request-id"]) == ("1", "mine")
    assert answer.headers["x-content-type-options"] == "nosniff"
    problem = answer.json()
    assert problem.pop("error", problem["detail"]) == problem["detail"]
    assert ("error" in answer.json()) == path.startswith("/v2")
    assert problem == problem_of(
        limits.OVERLOADED,
        "10 tokens of text are waiting, and 10 may; ask again later",
        instance=path,
    ).model_dump(exclude_none=True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/livez", 200), ("GET", "/readyz", 200), ("GET", "/metrics", 200),
     ("GET", "/v1/models", 200), ("GET", "/v1/predict", 405), ("POST", "/nothing", 404),
     ("POST", "/v1/admin/rollback", 403)],
)  # fmt: skip
def test_all_else_is_answered(full, method, path, status):
    assert full().request(method, path).status_code == status


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"text": ""}', b'{"text": "a"}', b'{"text": "a", "scorer": "magic"}']
)
def test_no_place_is_held_after_an_answer(client, body):
    client.post("/v1/predict", content=body, headers=JSON)
    admission = client.app.state.service.engine.admission
    assert admission.tokens == 0
    assert not admission._parse_slots.locked()
