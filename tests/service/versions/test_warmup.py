"""What a model is tried on before it answers."""

from types import SimpleNamespace

import pytest

from longtail.models.errors import LongtailError
from longtail.models.predict.trial import check_scorers, warm_up
from longtail.service.versions.loading import overlap


@pytest.fixture
def predictor(registry, fake_predictor):
    return fake_predictor(registry.open(1))


def run(work):
    return work()


def test_the_first_queries_have_the_shortest_and_the_largest_shapes(predictor):
    predictor.batch_tokens = 250
    warm_up(predictor, run)
    shapes = {(len(texts), len(texts[0].split())) for texts in predictor.calls}
    assert shapes == {(1, 12), (1, 100), (2, 100)}


def test_every_scorer_is_tried(predictor):
    tried = []
    predict = predictor.predict
    predictor.predict = lambda texts, **o: tried.append(o["scorer"]) or predict(texts, **o)
    check_scorers(predictor, run, ["a", "b"])
    assert list(dict.fromkeys(tried)) == ["retrieval", "sparse"]


@pytest.mark.parametrize(
    "fails",
    [
        lambda texts, **_: len(texts) == 1,
        lambda texts, **_: len(texts) == 8,
        lambda texts, correction, **_: correction == "none",
        lambda texts, label_filter, **_: label_filter and label_filter.include,
        lambda texts, label_filter, **_: label_filter and label_filter.exclude,
    ],
)
def test_one_text_a_list_without_correction_and_filters_are_tried(predictor, fails):
    predict = predictor.predict

    def may_fail(texts, **options):
        if options["scorer"] == "sparse" and fails(texts, **options):
            raise LongtailError("no answer")
        return predict(texts, **options)

    predictor.predict = may_fail
    with pytest.raises(LongtailError, match="no answer"):
        check_scorers(predictor, run, [f"text {i}" for i in range(16)])


@pytest.mark.parametrize(
    ("ones", "others", "share"),
    [
        (["ab", "cd"], ["ab", "cd"], 1.0),
        (["ab", "cd"], ["ax", "xy"], 0.25),
        (["abcd"], ["a"], 0.25),
        ([""], [""], 1.0),
    ],
)
def test_overlap_is_the_share_of_common_labels(ones, others, share):
    assert overlap(list(map(frozenset, ones)), list(map(frozenset, others))) == share


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_fails_the_trial(predictor, score):
    predictions = predictor.predict(["a"])
    object.__setattr__(predictions[0].labels[0], "score", score)
    predictor.predict = lambda texts, **_: predictions
    with pytest.raises(LongtailError, match=r"label 'L0' the score (nan|inf)"):
        check_scorers(predictor, run, ["a"])


def test_a_scorer_that_finds_nothing_at_all_fails_the_trial(predictor):
    none = SimpleNamespace(labels=())
    predictor.predict = lambda texts, **_: [none] * len(texts)
    with pytest.raises(LongtailError, match="'retrieval' found no label"):
        check_scorers(predictor, run, ["a", "b"])


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("scorer", ["names", "neighbours", "fast", "ensemble"])
def test_what_only_lists_what_it_finds_may_find_nothing(predictor, scorer, reads):
    predictor.scorers.names = (scorer,)
    predictor.scorers.needs_encoder = lambda asked: asked == "ensemble" and reads
    predictor.predict = lambda texts, **_: [SimpleNamespace(labels=())] * len(texts)
    if scorer == "ensemble" and reads:
        with pytest.raises(LongtailError, match="found no label"):
            check_scorers(predictor, run, ["a", "b"])
    else:
        check_scorers(predictor, run, ["a", "b"])
