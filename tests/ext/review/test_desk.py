"""Reviews of answers: what they change, and that no request is lost or late by them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from types import SimpleNamespace

import pytest

from longtail.ext.review import desk as reviews
from longtail.models.bundle.manifest import Calibration
from longtail.models.fitted.review import KNOTS, REVIEW, FittedReview
from tests.bench.reviewers import FAULTS, RIGHT, standing_in

ONE = (1.0, 1.0)
FITTED = FittedReview(
    "retrieval", "rerank", 6, 300,
    Calibration((0.0,), ONE, -20.0), Calibration((0.0,), ONE, 0.0), (1.0,) * len(KNOTS),
)  # fmt: skip


def prefers_label_4(_, candidate):
    return 10.0 if candidate == "Label 4" else 0.0


@pytest.fixture
def serve(open_client, make_loader, fake_predictor):
    """Start a service whose model was fitted to a reviewer on the loopback."""

    class Reviewed(fake_predictor):
        parts = SimpleNamespace(fitted={REVIEW.name: FITTED})

    def start(server, **settings):
        given = {"reviewer": "rerank", "review_address": server.url} | settings
        return open_client(make_loader(predictor_class=Reviewed), **given)

    return start


def ask(client, **body):
    response = client.post("/v1/predict", json={"text": "twenty characters ...", "k": 3} | body)
    assert response.status_code == 200, response.text
    return response.json()["results"]


def ids_of(result):
    return [each["id"] for each in result["labels"]]


def test_a_review_changes_the_order_and_says_how(serve):
    with standing_in(prefers_label_4) as server, serve(server) as client:
        (plain,) = ask(client)
        (result,) = ask(client, review=True)
        assert ids_of(plain) == ["L0", "L1", "L2"]
        assert ids_of(result) == ["L4", "L0", "L1"]
        assert [each["rank_before"] for each in result["labels"]] == [5, 1, 2]
        assert (result["reviewed"], result["exact"]) == (True, False)
        assert "reviewed" not in plain and "rank_before" not in plain["labels"][0]
        ((path, body),) = server.bodies
        assert path == "/rerank"
        assert body["texts"] == [f"Label {i}" for i in range(6)]
        likely = result["labels"][0]["probability"]
        assert 0.9 < likely < 1
        assert ids_of(ask(client, review=True, threshold=likely)[0]) == ["L4"]
        (automatic,) = ask(client, review=True, threshold="auto")
        assert len(automatic["labels"]) == len(ask(client, threshold="auto")[0]["labels"])
        metrics = client.get("/metrics").text
        assert 'longtail_reviews_total{outcome="reviewed"} 3.0' in metrics


@pytest.mark.parametrize(
    ("body", "settings", "why"),
    [
        ({"scorer": "sparse"}, {}, "not-fitted"),
        ({"k": 7}, {}, "not-fitted"),
        ({}, {"review_model": "another"}, "not-fitted"),
        ({}, {"max_k": 5}, "busy"),
        ({}, {"review_timeout_s": 1e-9}, "time-limit"),
    ],
)
def test_without_a_review_the_answer_is_the_ordinary_one(serve, body, settings, why):
    with standing_in(prefers_label_4) as server, serve(server, **settings) as client:
        (plain,), (result,) = ask(client, **body), ask(client, review=True, **body)
        assert (result.pop("reviewed"), result.pop("review_failed")) == (False, why)
        assert result == plain
        assert server.bodies == []


def test_a_version_that_does_not_know_the_reviewer_is_named_once_in_the_log(serve, caplog):
    with standing_in(prefers_label_4) as server, serve(server, review_model="other") as client:
        assert {ask(client, review=True)[0]["review_failed"] for _ in range(3)} == {"not-fitted"}
    assert caplog.text.count("longtail review") == 1
    assert "'rerank other'" in caplog.text


def test_reviews_are_bounded_by_request_and_by_day(serve, monkeypatch):
    bounds = {"max_reviews_per_request": 2, "max_reviews_per_day": 3}
    with standing_in(prefers_label_4) as server, serve(server, **bounds) as client:
        asked = {"texts": ["a first", "b second", "c third"]}
        outcomes = []
        for _ in range(2):
            response = client.post("/v1/predict", json=asked | {"k": 3, "review": True})
            outcomes += [x.get("review_failed") for x in response.json()["results"]]
        assert outcomes == [None, None, "request-limit", None, "daily-limit", "request-limit"]
        assert len(server.bodies) == 3
        tomorrow = time.time() + 86_400
        monkeypatch.setattr("longtail.ext.review.desk.time.time", lambda: tomorrow)
        assert ask(client, review=True)[0]["reviewed"]


def test_only_texts_in_doubt_are_reviewed_by_rule(serve):
    with standing_in(prefers_label_4) as server:
        with serve(server, review_when="doubt", review_doubt_to=1.0) as client:
            assert ask(client)[0]["reviewed"]
            assert "reviewed" not in ask(client, review=False)[0]
            assert "reviewed" not in ask(client, tail_dial=0.5)[0]
            assert "reviewed" not in ask(client, accept=True)[0]  # it has not abstained
        with serve(server, review_when="doubt") as client:  # the best label is certain
            assert "reviewed" not in ask(client)[0]
        with serve(server) as client:
            assert "reviewed" not in ask(client)[0]


def test_a_request_that_can_not_be_reviewed_is_refused(serve, client):
    response = client.post("/v1/predict", json={"text": "a text", "review": True})
    assert response.status_code == 422 and "no reviewer" in response.json()["detail"]
    with standing_in(prefers_label_4) as server, serve(server) as own:
        for option in ({"aim": "coverage"}, {"tail_dial": 1}, {"explain": True}):
            response = own.post("/v1/predict", json={"text": "a", "review": True} | option)
            assert response.status_code == 422
        assert server.bodies == []


@pytest.mark.parametrize(
    ("fault", "settings", "why"),
    [
        ("silent", {"review_timeout_s": 0.3}, "time-limit"),
        ("busy", {"review_attempts": 1}, "reviewer-failed"),
    ],
)
def test_a_reviewer_without_answers_is_left_alone_and_tried_again(
    serve, monkeypatch, caplog, fault, settings, why
):
    monkeypatch.setattr(reviews, "_PAUSE_S", 1e6, raising=False)
    with standing_in(prefers_label_4, [fault] * 4) as server, serve(server, **settings) as client:
        for expected in [why] * 3 + ["reviewer-paused"] * 3:
            (result,) = ask(client, review=True)
            assert (ids_of(result), result["review_failed"]) == (["L0", "L1", "L2"], expected)
        assert len(server.bodies) == 3
        assert "no answer to 3 reviews in a row" in caplog.text
        told = 'longtail_reviews_total{outcome="reviewer-paused"} 3.0'
        assert told in client.get("/metrics").text
        desk = client.app.state.service.revisers["review"].desk
        desk._paused_until = 0.0
        outcomes = [ask(client, review=True)[0]["review_failed"] for _ in range(2)]
        assert outcomes == [why, "reviewer-paused"]  # one tries it for all
        desk._paused_until = 0.0
        assert all(ask(client, review=True)[0]["reviewed"] for _ in range(3))


def test_neither_hasty_clients_nor_texts_that_are_refused_end_reviews_for_all(serve, monkeypatch):
    monkeypatch.setattr(reviews, "_PAUSE_S", 1e6, raising=False)
    faults = ["silent"] * 4 + ["garbage"] * 4
    with (
        standing_in(prefers_label_4, faults) as server,
        serve(server, review_timeout_s=60, review_concurrency=64) as client,
    ):
        told = [ask(client, review=True, timeout_s=1.5)[0]["review_failed"] for _ in range(4)]
        told += [ask(client, review=True)[0]["review_failed"] for _ in range(4)]
        assert told == ["time-limit"] * 4 + ["reviewer-failed"] * 4
        assert ask(client, review=True)[0]["reviewed"]


def test_whatever_the_reviewer_does_no_request_is_lost_or_late(serve, monkeypatch):
    monkeypatch.setattr(reviews, "_MOST_FAILURES", 1000, raising=False)
    limit_s = 3.0
    faults = cycle([RIGHT, *FAULTS])
    with (
        standing_in(prefers_label_4, faults) as server,
        serve(server, review_timeout_s=limit_s, review_attempts=1, review_concurrency=64) as client,
        ThreadPoolExecutor(8) as pool,
    ):

        def one(_):
            started = time.monotonic()
            (result,) = ask(client, review=True)
            return result, time.monotonic() - started

        answers = list(pool.map(one, range(2 * (1 + len(FAULTS)))))
        outcomes = [x.get("review_failed", "reviewed") for x, _ in answers]
        assert outcomes.count("reviewed") == 2
        assert outcomes.count("time-limit") >= 6  # the three slow ones, twice
        assert {*outcomes} == {"reviewed", "time-limit", "reviewer-failed"}
        for result, seconds in answers:
            assert ids_of(result) == (
                ["L4", "L0", "L1"] if result["reviewed"] else ["L0", "L1", "L2"]
            )
            assert seconds < limit_s + 30  # of a busy machine; `tests.bench.review` measures it
