"""No body over the limit is read to its end."""

import gzip

import pytest

JSON = {"content-type": "application/json"}


@pytest.fixture
def small(open_client):
    with open_client(max_body_bytes=2000) as client:
        yield client


def test_a_declared_length_over_the_limit_is_a_413(small):
    answer = small.post("/v1/predict", json={"text": "a" * 2000})
    assert answer.status_code == 413
    assert answer.json()["type"] == "urn:longtail:problem:body-too-large"
    assert "more than 2000 bytes" in answer.json()["detail"]


def test_a_chunked_body_is_a_413_and_read_only_up_to_the_limit(small):
    answer = small.post("/v1/predict", content=(b"a" * 500 for _ in range(100)), headers=JSON)
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_limit_holds_for_every_route(small):
    answer = small.request("GET", "/livez", content=b"a" * 2001)
    assert answer.status_code == 413


def packed(body: bytes) -> dict[str, object]:
    return {"content": gzip.compress(body), "headers": JSON | {"content-encoding": "gzip"}}


def test_a_gzip_body_is_read_and_its_limit_holds_for_what_it_unpacks_to(small):
    good = small.post("/v1/predict", **packed(b'{"text": "' + b"a" * 1988 + b'"}'))
    large = small.post("/v1/predict", **packed(b'{"text": "' + b"a" * 1989 + b'"}'))
    assert good.json()["results"][0]["labels"][0]["score"] == 1988.0
    assert (large.status_code, large.json()["type"]) == (413, "urn:longtail:problem:body-too-large")


def test_a_zip_bomb_is_refused(small):
    answer = small.post("/v1/predict", **packed(bytes(10**7)))
    assert answer.status_code == 413
