"""Which model answers a request."""

import threading
from concurrent.futures import CancelledError
from types import SimpleNamespace

import pytest

from longtail.models.errors import LongtailError, NotReadyError
from longtail.models.predict.trial import check_scorers, warm_up
from longtail.service.errors import ChangeError
from longtail.service.versions.changes import LoaderThread
from longtail.service.versions.loading import TrialThread, overlap
from longtail.service.versions.serving import Canary, ModelManager, ServedModel, Serving


def model(version):
    return ServedModel(version, f"digest {version}", SimpleNamespace())


def serving(*versions, default=1, current=None, **options):
    models = {version: model(version) for version in versions}
    return Serving(models, default, current, **options)


@pytest.fixture
def manager():
    return ModelManager(SimpleNamespace(versions=lambda: [1, 2, 3]))


def test_a_withdrawn_model_answers_no_more_and_the_reason_is_told(manager):
    manager.publish(serving(1))
    manager.withdraw("being replaced")
    with pytest.raises(NotReadyError, match="being replaced"):
        manager.check_ready()


def test_draining_ends_readiness_but_not_answers(manager):
    manager.publish(serving(1))
    manager.check_ready()
    manager.drain()
    with pytest.raises(NotReadyError, match="stopping"):
        manager.check_ready()
    assert manager.get().version == 1


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_canary_gets_its_share_evenly_however_requests_alternate(manager, share, stride):
    manager.publish(serving(1, 2, canary=Canary(2, share)))
    chosen = [manager.get_to_predict().version for _ in range(1000 * stride)][::stride]
    assert abs(chosen.count(2) - 1000 * share) <= 5


def test_a_canary_gets_the_same_requests_every_time():
    runs = []
    for _ in range(2):
        manager = ModelManager(SimpleNamespace())
        manager.publish(serving(1, 2, canary=Canary(2, 0.3)))
        runs.append([manager.get_to_predict().version for _ in range(50)])
    assert runs[0] == runs[1]


@pytest.fixture
def open_thread():
    threads = []

    def start(look=int, interval_s=0.0):
        threads.append(LoaderThread(look, interval_s))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.stop()


def test_a_look_that_fails_is_logged_and_not_the_last(open_thread, caplog):
    looks = iter([1, 2])
    again = threading.Event()

    def look():
        again.set() if next(looks, None) is None else 1 / 0

    open_thread(look, 0.001)
    assert again.wait(60)
    assert caplog.text.count("ZeroDivisionError: ") == 2


def test_stopping_cancels_what_waits_and_does_not_wait_for_what_has_begun(open_thread):
    thread, gate, busy, ended = open_thread(), *(threading.Event() for _ in range(3))

    def hang():
        busy.set()
        assert gate.wait(60)
        ended.set()

    begun, waiting = thread.submit(hang), thread.submit(int)
    assert busy.wait(60)
    thread.stop()
    for each in (begun, waiting):
        with pytest.raises(CancelledError):
            each.result(60)
    assert thread.submit(int).cancelled()
    assert thread.is_stopped
    gate.set()
    assert ended.wait(60)


def test_work_is_done_in_order_on_one_prepared_thread():
    prepared = []
    with TrialThread(lambda: prepared.append(threading.current_thread().name), 60) as try_out:
        found = [try_out(lambda: threading.current_thread().name) for _ in range(2)]
    assert found == ["warm-up"] * 2 and prepared == ["warm-up"]


def test_work_that_does_not_end_fails_and_so_does_what_comes_after_it():
    gate = threading.Event()
    with TrialThread(int, 0.01) as try_out:
        for work in (gate.wait, int):
            with pytest.raises(ChangeError, match=r"more than 0\.01 s"):
                try_out(work)
    gate.set()


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
