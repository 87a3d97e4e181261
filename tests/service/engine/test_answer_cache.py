"""Answers that are kept: what tells them apart, how many there may be, and when they go."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.labels.filters import LabelFilter, LabelSet
from longtail.models.options import RankingOptions
from longtail.models.results import LabelScore, Prediction
from longtail.service.engine.answer_cache import AnswerCache, CacheKeys, is_kept

OPTIONS = RankingOptions(k=2, scorer="sparse")
KEYS = CacheKeys.of("d1", OPTIONS)
ANSWER_BYTES = 1024 + 2 * (256 + 2 + 7)


def prediction_of(number, num_labels=2):
    labels = (
        LabelScore(i, f"L{i}", f"Label {i}", number + i / 3, 1 / (i + 2)) for i in range(num_labels)
    )
    return Prediction(tuple(labels), 3, False, True, "none", 3, 3)


def cache_of(num_answers, *versions):
    cache = AnswerCache(num_answers * ANSWER_BYTES)
    cache.keep(versions or ("d1",))
    return cache


def test_an_answer_is_found_again_by_an_equal_text():
    cache = cache_of(3)
    cache.put(KEYS, "olive oil", prediction_of(1))
    assert cache.get(KEYS, "olive oil") == prediction_of(1)
    assert cache.get(KEYS, "olive oils") is None
    assert (len(cache), cache.num_bytes) == (1, ANSWER_BYTES)


OTHERS = {
    "k": 3,
    "scorer": "retrieval",
    "threshold": 0.5,
    "correction": "none",
    "tail_dial": 0.25,
    "aim": "coverage",
    "label_filter": LabelFilter(exclude=("L1",)),
}


@pytest.mark.parametrize("field", OTHERS)
def test_every_option_tells_answers_apart(field):
    cache = cache_of(3)
    cache.put(KEYS, "x", prediction_of(1))
    assert cache.get(CacheKeys.of("d1", replace(OPTIONS, **{field: OTHERS[field]})), "x") is None


def test_no_option_is_forgotten():
    assert {*OTHERS, "explain"} == set(RankingOptions.__dataclass_fields__)


def test_versions_are_told_apart_as_the_arms_of_a_canary_must_be():
    cache = cache_of(3, "d1", "d2")
    cache.put(KEYS, "x", prediction_of(1))
    cache.put(CacheKeys.of("d2", OPTIONS), "x", prediction_of(2))
    assert cache.get(KEYS, "x") == prediction_of(1)
    assert cache.get(CacheKeys.of("d2", OPTIONS), "x") == prediction_of(2)


def keys_with(**fields):
    return CacheKeys.of("d1", replace(OPTIONS, label_filter=LabelFilter(**fields)))


def test_sets_are_known_by_their_labels_and_not_by_their_names():
    once, again, changed = (LabelSet("mine", ids) for ids in (("a", "b"), ("a", "b"), ("a",)))
    assert keys_with(include_set=once) == keys_with(include_set=again)
    kinds = [
        keys_with(include_set=once), keys_with(include_set=changed), keys_with(exclude_set=once),
        keys_with(include=("a", "b")), keys_with(exclude=("a", "b")), keys_with(under=("a", "b")),
        keys_with(include=("ab",)), KEYS,
    ]  # fmt: skip
    assert len({keys.question for keys in kinds}) == len(kinds)


def test_texts_that_are_not_unicode_have_keys_too():
    assert KEYS.key("\ud800") != KEYS.key("\ud801")


def test_explanations_quote_the_text_and_are_not_kept():
    assert is_kept(OPTIONS)
    assert not is_kept(replace(OPTIONS, explain=True))


def test_the_answer_that_was_not_asked_for_longest_makes_room():
    cache = cache_of(2)
    for number, text in enumerate("ab"):
        cache.put(KEYS, text, prediction_of(number))
    assert cache.get(KEYS, "a") is not None
    cache.put(KEYS, "c", prediction_of(2))
    assert [cache.get(KEYS, text) is not None for text in "abc"] == [True, False, True]
    assert cache.num_bytes == 2 * ANSWER_BYTES


def test_an_answer_too_large_for_all_room_is_not_kept_and_drives_out_none():
    cache = cache_of(1)
    cache.put(KEYS, "a", prediction_of(0))
    cache.put(KEYS, "b", prediction_of(0, num_labels=8))
    assert [cache.get(KEYS, text) is not None for text in "ab"] == [True, False]


def test_what_leaves_takes_its_answers_along_and_brings_no_more():
    cache = cache_of(9, "d1", "d2")
    old, new = KEYS, CacheKeys.of("d2", OPTIONS)
    for keys in (old, new):
        cache.put(keys, "x", prediction_of(1))
    cache.keep(["d2"])
    cache.put(old, "y", prediction_of(1))  # was under way meanwhile
    assert (len(cache), cache.num_bytes) == (1, ANSWER_BYTES)
    assert cache.get(new, "x") is not None
    cache.keep([])
    assert (len(cache), cache.num_bytes) == (0, 0)


def test_nothing_is_kept_where_nothing_may_be():
    cache = AnswerCache()
    cache.keep(["d1"])
    cache.put(KEYS, "x", prediction_of(1))
    assert not cache.is_on
    assert len(cache) == 0


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 4)), max_size=40))
def test_it_holds_what_a_plain_list_of_the_last_answers_holds(puts):
    cache = cache_of(3)
    kept: list[tuple[str, Prediction]] = []
    for text, num_labels in puts:
        answer = prediction_of(0, num_labels)
        cache.put(KEYS, text, answer)
        kept = [pair for pair in kept if pair[0] != text] + [(text, answer)]
        while sum(1024 + 265 * len(each.labels) for _, each in kept) > 3 * ANSWER_BYTES:
            kept.pop(0)
    assert cache.num_bytes == sum(1024 + 265 * len(each.labels) for _, each in kept)
    assert all(cache.get(KEYS, text) == answer for text, answer in kept)
    assert len(cache) == len(kept)


@pytest.mark.parametrize("num_labels", [0, 5, 100])
def test_no_more_memory_is_taken_than_is_counted(num_labels):
    cache = AnswerCache(10**9)
    cache.keep(["d1"])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(300):
            cache.put(KEYS, f"text {number}", prediction_of(number, num_labels))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.2 * cache.num_bytes < after - before < cache.num_bytes


def test_the_service_answers_equal_requests_from_it_until_the_version_leaves(
    open_admin, make_loader, caplog
):
    loader = make_loader()
    caplog.set_level("INFO")
    with open_admin(loader, answer_cache_bytes=100_000) as client:
        num_calls = len(loader.loaded[0].calls)
        bodies = [{"text": "olive oil", "k": 2}, {"texts": ["olive oil"] * 2, "k": 2}]
        first, second = (client.post("/v1/predict", json=body).json() for body in bodies)
        assert second["results"] == first["results"] * 2
        assert len(loader.loaded[0].calls) == num_calls + 1
        assert [x for x in caplog.messages if "reused=2" in x]
        metrics = client.get("/metrics").text
        assert 'longtail_text_answers_total{origin="cache"} 2.0' in metrics
        assert 'longtail_text_answers_total{origin="computed"} 1.0' in metrics
        assert "longtail_answer_cache_bytes 0.0" not in metrics

        assert client.post("/v1/admin/models/1/activate").status_code == 200
        assert client.post("/v1/predict", json=bodies[0]).json()["model"]["version"] == 1
        assert loader.loaded[1].calls[-1] == ["olive oil"]


def test_it_is_off_by_default(client):
    for _ in range(2):
        client.post("/v1/predict", json={"text": "olive oil"})
    metrics = client.get("/metrics").text
    assert 'longtail_text_answers_total{origin="computed"} 2.0' in metrics
    assert "longtail_answer_cache_bytes 0.0" in metrics
