"""Probes from the start of loading to its good or bad end."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from longtail.models.errors import BundleCorruptError
from longtail.service.engine import self_check
from longtail.service.engine.admission import Admission
from longtail.service.engine.engine import _OWN_TEXT
from longtail.service.engine.self_check import SelfCheck
from longtail.service.errors import QueueFullError


def test_routes_answer_while_the_models_load_and_predictions_come_with_them(
    open_client, make_loader, wait_for_loading
):
    gate = threading.Event()
    with open_client(make_loader(gate=gate), wait=False) as client:
        statuses = {path: client.get(path).status_code for path in ("/livez", "/readyz", "/docs")}
        listed = client.get("/v1/models").json()["models"]
        before = client.post("/v1/predict", json={"text": "a"})
        gate.set()
        wait_for_loading(client)
        assert client.get("/readyz").json() == {"status": "ready", "waiting_scorers": []}
        assert client.post("/v1/predict", json={"text": "a"}).status_code == 200
    assert statuses == {"/livez": 200, "/readyz": 503, "/docs": 200}
    assert [model["loaded"] for model in listed] == [False, False]
    assert (before.status_code, before.headers["retry-after"]) == (503, "5")


def test_readiness_is_degraded_while_an_earlier_version_answers(open_client, registry):
    weights = registry.folder / "2" / "retrieval.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with open_client() as client:
        ready, listed = client.get("/readyz"), client.get("/v1/models").json()
        answer = client.post("/v1/predict", json={"text": "a"})
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    assert "version 1 answers" in listed["problem"]
    assert (answer.status_code, answer.json()["model"]["version"]) == (200, 1)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (
            BundleCorruptError("file 'x' is missing"),
            "file 'x' is missing; mend it, then restart it",
        ),
        (OSError("disk path"), "failed with OSError; see the log"),
    ],
)
def test_a_failed_load_keeps_readiness_at_503_with_the_reason(
    open_client, make_loader, caplog, failure, words
):
    with open_client(make_loader(failure=failure)) as client:
        problem = client.get("/readyz").json()
    assert problem["type"] == "urn:longtail:problem:not-ready"
    assert words in problem["detail"]
    assert "disk path" not in problem["detail"]
    assert "loading version=2 failed" in caplog.text


def test_stopping_does_not_wait_for_models_that_still_load(open_client, make_loader, caplog):
    gate = threading.Event()
    with open_client(make_loader(gate=gate), wait=False):
        pass
    stopped = not gate.is_set()
    gate.set()
    assert stopped
    assert "loading failed" not in caplog.text


PATIENCE_S = 60.0


def ask(client, text="some words"):
    return client.post("/v1/predict", json={"text": text}).status_code


def until_ready_is(client, status):
    """Ask for readiness until it is so, and for labels where others fail; return its document.

    A single failure may fall into the rest after a self-check that a busy machine has caused.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (answer := client.get("/readyz")).status_code != status:
        assert time.monotonic() < deadline
        if status == 503:
            ask(client)
        time.sleep(0.005)
    return answer.json()


@pytest.fixture
def fragile(fake_predictor):
    """A model that fails while `failure` is set: for all texts, or for those that hold `word`."""

    class Fragile(fake_predictor):
        failure: BaseException | None = None
        word = ""

        def predict(self, texts, **options):
            if self.failure and any(self.word in text for text in texts):
                raise self.failure
            return super().predict(texts, **options)

    return Fragile


def test_a_service_that_fails_every_request_is_not_ready_until_it_answers_again(
    open_client, make_loader, fragile, caplog
):
    with open_client(make_loader(predictor_class=fragile)) as client:
        assert ask(client) == 200
        fragile.failure = RuntimeError("secret words")
        assert ask(client) == 500
        problem = until_ready_is(client, 503)
        assert client.get("/livez").status_code == 200
        assert client.get("/v2/health/ready").status_code == 503
        fragile.failure = None
        assert until_ready_is(client, 200)["status"] == "ready"
        assert ask(client) == 200
    assert problem["type"] == "urn:longtail:problem:not-ready"
    assert "ordinary requests fail with RuntimeError, as a self-check found" in problem["detail"]
    assert "ready again when a self-check is answered" in problem["detail"]
    assert "secret" not in problem["detail"]
    assert "not ready any more: ordinary requests fail with RuntimeError" in caplog.text
    assert "ready again: a self-check was answered" in caplog.text


def test_a_service_that_cannot_even_admit_requests_is_not_ready(open_client, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    with open_client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(Admission, "check", broken)
            assert ask(client) == 500
            assert "fail with ZeroDivisionError" in until_ready_is(client, 503)["detail"]
        until_ready_is(client, 200)


def test_requests_that_fail_by_what_they_contain_do_not_touch_readiness(
    open_client, make_loader, fragile, monkeypatch
):
    monkeypatch.setattr(self_check, "_REST_S", 1e9)
    loader = make_loader(predictor_class=fragile)
    with open_client(loader) as client:
        fragile.failure, fragile.word = RuntimeError(), "poison"
        for _ in range(30):
            assert ask(client, "poison") == 500
            assert client.get("/readyz").status_code == 200
            assert ask(client) == 200
        asked = sum(_OWN_TEXT in call for call in loader.loaded[0].calls)
    assert asked in {1, 2}  # twice where it was computed together with one that failed


def test_a_self_check_gives_back_no_place_of_others(open_client, make_loader, fragile):
    with open_client(make_loader(predictor_class=fragile)) as client:
        fragile.failure, fragile.word = RuntimeError(), "poison"
        ask(client, "poison")
        until_ready_is(client, 200)
        assert ask(client) == 200
        admission = client.app.state.service.engine.admission
        deadline = time.monotonic() + PATIENCE_S
        while admission.tokens:
            assert time.monotonic() < deadline
        assert not admission._parse_slots.locked()


@pytest.mark.parametrize("method", ["read", "predict"], ids=["tokeniser", "compute thread"])
def test_a_service_whose_thread_hangs_is_not_ready_until_it_goes_on(
    open_client, make_loader, fake_predictor, method
):
    gate = threading.Event()

    class Hanging(fake_predictor):
        pass

    def hang(self, texts, **options):
        assert "hang" not in texts or gate.wait(PATIENCE_S)
        return getattr(fake_predictor, method)(self, texts, **options)

    setattr(Hanging, method, hang)
    with open_client(make_loader(predictor_class=Hanging), request_timeout_s=0.2) as client:
        assert ask(client, "hang") == 504
        problem = until_ready_is(client, 503)
        gate.set()
        until_ready_is(client, 200)
    assert "no request was answered within 0.2 s" in problem["detail"]


def test_a_compute_thread_that_is_killed_begins_anew(open_client, make_loader, fragile, caplog):
    with open_client(make_loader(predictor_class=fragile), request_timeout_s=PATIENCE_S) as client:
        fragile.failure, fragile.word = SystemExit(), "poison"
        for _ in range(3):
            assert ask(client, "poison") == 500
            assert ask(client) == 200
        assert client.get("/readyz").status_code == 200
    assert caplog.text.count("the thread 'compute_0' restarts") == 3


def test_an_error_outside_of_the_model_does_not_end_its_thread(open_client, make_loader):
    predictor_class = make_loader.predictor_class

    class BrokenBatch(type(predictor_class.read(None, ["a"]))):
        def take(self, rows):
            raise MemoryError

    class Broken(predictor_class):
        def read(self, texts):
            return BrokenBatch(list(texts)) if "broken" in texts else super().read(texts)

    with open_client(make_loader(predictor_class=Broken)) as client:
        answer = client.post("/v1/predict", json={"texts": ["broken", "other"]})
        assert answer.status_code == 500
        assert ask(client) == 200
        assert client.get("/readyz").status_code == 200


class FakeEngine:
    """An engine whose answers to itself are set."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.num_answered = 0
        self.num_asked = 0
        self.admission = SimpleNamespace(tokens=0)

    def thread_problem(self):
        return None

    async def ask_itself(self, timeout_s):
        self.num_asked += 1
        failure = self.failures.pop(0) if self.failures else None
        if callable(failure):
            failure = failure()
        if failure is not None:
            raise failure


def run_check(engine, timeout_s=30.0):
    """Let a self-check come to its end after one failure; return the problems on the way."""

    async def play():
        check = SelfCheck(engine, timeout_s)
        problems = []
        check._set_problem = lambda problem: (
            problems.append(problem) or setattr(check, "_problem", problem)
        )
        check.note_failure()
        await asyncio.wait_for(check._task, PATIENCE_S)
        return problems

    return asyncio.run(play())


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch, request):
    if "alone" in request.node.name:
        monkeypatch.setattr(self_check, "_PAUSE_S", 0.0)
        monkeypatch.setattr(self_check, "_PAUSE_UNREADY_S", 0.0)


def test_alone_three_failures_in_a_row_are_not():
    problems = run_check(FakeEngine(*[ValueError()] * 4))
    assert len(problems) == 3
    assert problems[-1] is None
    assert all("fail with ValueError" in problem for problem in problems[:-1])


def test_alone_a_full_queue_is_no_failure_while_others_are_answered():
    engine = FakeEngine()

    def refuse():
        engine.num_answered += 1
        return QueueFullError("full", 1)

    engine.failures = [refuse]
    assert run_check(engine) == [None]
    assert engine.num_asked == 1


def test_alone_work_that_waits_without_any_answer_starts_a_check():
    async def play():
        engine, now = FakeEngine(), 100.0
        check = SelfCheck(engine, 30.0, clock=lambda: now)
        engine.admission.tokens = 10
        check.check_ready()
        now += 5.0
        engine.num_answered += 1
        check.check_ready()
        now += 4.9
        check.check_ready()
        assert check._task is None
        now += 0.2
        check.check_ready()
        await check._task
        assert engine.num_asked == 1

    asyncio.run(play())


@pytest.mark.parametrize(
    ("device", "error", "found", "status"),
    [
        ("cuda", RuntimeError("CUDA error: an illegal memory access"), "CUDA error", 503),
        ("cuda", torch.AcceleratorError("CUDA error: device lost"), "CUDA error", 503),
        ("cuda", torch.OutOfMemoryError("CUDA out of memory"), None, 200),
        ("cuda", RuntimeError("of another kind"), None, 200),
        ("cuda", BundleCorruptError("of ours"), "is not asked", 200),
        ("cpu", RuntimeError("CUDA error"), "is not asked", 200),
    ],
)
def test_a_process_that_lost_its_gpu_is_neither_alive_nor_ready(
    open_client, make_loader, fake_predictor, monkeypatch, device, error, found, status
):
    class Failing(fake_predictor):
        def encode(self, batch):
            if "bad" in batch.texts:
                raise error

    Failing.device = device
    monkeypatch.setattr("longtail.service.engine.worker.gpu_problem", lambda: found)
    with open_client(make_loader(predictor_class=Failing)) as client:
        assert client.get("/livez").status_code == 200
        assert client.post("/v1/predict", json={"text": "bad"}).status_code >= 500
        alive, ready = client.get("/livez"), client.get("/readyz")
        good = client.post("/v1/predict", json={"text": "good"})
    assert alive.status_code == ready.status_code == good.status_code == status
    if status == 503:
        for each in (alive, ready, good):
            assert each.json()["detail"] == (
                "the GPU can't be used by this process any more (CUDA error); restart the service"
            )
