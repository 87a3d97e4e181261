"""What answers say about drift, counted by hand."""

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from longtail.service.engine.queries import Query
from longtail.service.http.drift_metrics import DriftMetrics
from longtail.service.schemas.base import Options

ASKED = Query(("a text",))


def label(index, probability=None):
    return SimpleNamespace(index=index, probability=probability)


def answer(*texts, version=1, num_labels=10):
    """An answer to texts: each with its labels and what is known of it."""
    predictions = [SimpleNamespace(labels=labels, familiarity=about) for labels, about in texts]
    model = SimpleNamespace(
        version=version,
        thresholds={"sparse": 0.5},
        predictor=SimpleNamespace(catalogue=range(num_labels)),
    )
    return SimpleNamespace(model=model, scorer="sparse", predictions=predictions)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def drift(registry):
    return DriftMetrics(registry)


@pytest.fixture
def value(registry):
    def value_of(name, **labels):
        return registry.get_sample_value(name, {"version": "1", **labels})

    return value_of


def test_texts_by_whether_a_label_reaches_the_threshold(drift, value):
    drift.observe(ASKED, answer(([label(0, 0.5), label(1, 0.1)], None), ([label(2, 0.4)], None)))
    drift.observe(ASKED, answer(([], None)))
    assert value("longtail_texts_total", reaches_threshold="yes") == 1
    assert value("longtail_texts_total", reaches_threshold="no") == 2


@pytest.mark.parametrize(
    "query",
    [
        Query(("a",), Options(tail_dial=0.5)),
        Query(("a",), Options(aim="propensity")),
        Query(("a",), Options(threshold=0.6)),
        Query(("a",), Options(include=["L1"])),
    ],
)
def test_what_is_not_the_best_of_all_says_nothing(drift, value, query):
    drift.observe(query, answer(([label(0, 0.7)], None)))
    assert value("longtail_texts_total", reaches_threshold="unknown") == 1
    assert value("longtail_texts_total", reaches_threshold="yes") == 0


def test_old_versions_are_forgotten(drift, registry):
    for version in range(1, 12):
        drift.observe(ASKED, answer(([label(0)], None), version=version))
    known = [
        version
        for version in range(1, 12)
        if registry.get_sample_value("longtail_labels_predicted", {"version": str(version)})
    ]
    assert known == [4, 5, 6, 7, 8, 9, 10, 11]
