"""Requests made up from the OpenAPI document, good and bad ones, get answers as it promises.

The same few for each operation by default; with `FUZZ_REQUESTS` and `FUZZ_SEED` others, and as many
in all.
"""

import gzip
import json
import os

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

pytestmark = pytest.mark.slow

NUM_REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "0"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
NUM_OPERATIONS = 100
"""About, with and without keys, good and bad requests for each."""
NUM_EXAMPLES = max(10, NUM_REQUESTS // NUM_OPERATIONS)
THERE = {"project_id": "longtail", "model": "longtail", "version": "2", "label_id": "L1"}
MAY_REFUSE = {
    "GET /v1/labels", "POST /v1/predict", "POST /v1/candidates", "POST /v1/batch",
    "POST /v2/models/{model}/infer",
    "POST /v2/models/{model}/versions/{version}/infer", "POST /v1/projects/{project_id}/suggest",
    "POST /v1/projects/{project_id}/suggest-batch", "POST /v1/feedback",
    "DELETE /v1/admin/feedback", "POST /v1/projects/{project_id}/learn",
}  # fmt: skip
"""Whose good requests may ask for what there is not: a scorer, a label, a language, a large k."""

TAKES_ALL = {"POST /v1/batch"}
"""Whose answer is good whatever the body: each line has an error of its own."""


@schemathesis.serializer("application/x-ndjson")
def serialise_lines(_, value):
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "surrogatepass")


def operations_of(url, mode):
    for result in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
        operation = result.ok()
        if mode is GenerationMode.POSITIVE or has_bad_requests(operation):
            yield operation


def has_bad_requests(operation) -> bool:
    """Whether a request can break its schema: any string is good for a name in a path."""
    kinds = [p.definition["schema"].get("type") for p in operation.path_parameters]
    return bool(operation.body or operation.query) or "integer" in kinds


def is_good(case, location) -> bool:
    component = case.meta.components.get(location)
    return component is None or component.mode is GenerationMode.POSITIVE


def fuzz(operation, mode, headers) -> None:
    """Ask for random things; half of the time of what is there."""
    excluded = [not_a_server_error]  # which takes 503 and 504 for failures
    excluded += [positive_data_acceptance] if operation.label in MAY_REFUSE else []
    excluded += [negative_data_rejection] if operation.label in TAKES_ALL else []

    @settings(
        max_examples=NUM_EXAMPLES,
        derandomize=not SEED,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), wants_known=st.booleans())
    def ask(case, wants_known) -> None:
        if wants_known and is_good(case, ParameterLocation.PATH):
            for name in case.path_parameters:
                case.path_parameters[name] = THERE[name]
        is_mended = not is_good(case, ParameterLocation.HEADER)  # we send the right key
        checks = [*excluded, negative_data_rejection] if is_mended else excluded
        answer = case.call(headers=headers)
        if answer.status_code == 413:  # which is a refusal, too
            checks = [*checks, negative_data_rejection]
        case.validate_response(answer, headers=headers, excluded_checks=checks)
        assert answer.status_code != 500

    (seed(SEED)(ask) if SEED else ask)()


@pytest.mark.parametrize("wants_keys", [False, True], ids=["open", "with keys"])
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_operation_answers_as_documented(open_server, keys, tmp_path, mode, wants_keys):
    (api_key, api_entry), (admin_key, admin_entry) = keys
    options = {"admin_keys": admin_entry, "feedback": tmp_path / "feedback"} | (
        {"api_keys": api_entry} if wants_keys else {}
    )
    with open_server(log_level="error", **options) as url:
        labels = []
        for operation in operations_of(url, mode):
            key = admin_key if "/admin/" in operation.path else api_key
            fuzz(operation, mode, {"Authorization": f"Bearer {key}"})
            labels.append(operation.label)
    assert len(labels) > 10


DEEP = b"[" * 100_000
HOSTILE = {
    "nothing": b"", "a NUL": b"\0", "half of a character": b'{"text": "\xc3"}',
    "half of a pair": b'{"text": "\\ud800", "documents": [{"text": "\\ud800"}]}', "too deep": DEEP,
    "too deep inside": b'{"text": ' + DEEP,
    "a huge number": b'{"text": "a", "k": ' + b"9" * 5000 + b"}",
    "infinity": b'{"text": "a", "threshold": Infinity, "tail_dial": 1e999}',
    "twice the same": b'{"text": "a", "text": 5, "inputs": 5}', "a list": b"[1, 2, 3]",
    "a bomb": gzip.compress(bytes(2**25)), "not gzip": b"\x1f\x8b broken",
    "many fields": b"text=a&" * 1000, "a broken escape": b"text=%zz%&limit=%00&=",
    "no form": b"\xff\xfe=\xff",
}  # fmt: skip
MEDIA_TYPES = (
    "application/json", "application/x-www-form-urlencoded", "application/x-ndjson",
    "application/octet-stream", "application/json; charset=\x7f", "/;",
)  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_no_body_makes_the_service_fail(client, body):
    document = client.get("/openapi.json").json()
    paths = [
        path.format(**THERE)
        for path, operations in document["paths"].items()
        if "requestBody" in operations.get("post", {})
    ]
    headers = {"Content-Encoding": "gzip"} if body[:2] == b"\x1f\x8b" else {}
    for path in paths:
        for media_type in MEDIA_TYPES:
            for more in ({}, {"Inference-Header-Content-Length": "2"}):
                sent = {"Content-Type": media_type, **headers, **more}
                answer = client.post(path, content=body, headers=sent)
                check_refusal(answer)
    assert len(paths) >= 6


def check_refusal(answer: httpx.Response) -> None:
    """Check that an answer is a problem or, of what takes all bodies, a good one."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        problem = json.loads(answer.content)
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert problem["status"] == answer.status_code
