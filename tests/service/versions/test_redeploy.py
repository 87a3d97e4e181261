"""Swapping models: what is served before, meanwhile, and after, when all goes well and when not."""

import gc
import threading
import weakref
from concurrent.futures import CancelledError

import pytest
import torch
from prometheus_client import CollectorRegistry

from longtail.models.errors import NotReadyError
from longtail.service.errors import ChangeError
from longtail.service.telemetry.metrics import ModelMetrics
from longtail.service.versions.changes import Policy
from longtail.service.versions.loading import ModelLoader
from longtail.service.versions.redeploy import Redeployer
from longtail.service.versions.serving import Canary, ModelManager

WAIT_S = 60


class Deployment:
    """A redeployer with all that it needs, and no service around it."""

    def __init__(
        self, registry, load, *, available=None, memory_factor=0.0, warmup_timeout_s=60.0, **policy
    ):
        self.metrics = CollectorRegistry()
        self.registry = registry
        self.manager = ModelManager(registry)
        self.loader = ModelLoader(
            registry,
            load,
            memory_factor=memory_factor,
            warmup_timeout_s=warmup_timeout_s,
            available=lambda: available,
        )
        self.redeployer = Redeployer(self.manager, self.loader, Policy(**policy))
        self.started = self.redeployer.start(lambda work: work(), ModelMetrics(self.metrics))

    def look(self):
        self.redeployer.look().result(WAIT_S)

    def do(self, action, *arguments):
        return getattr(self.redeployer, action)(*arguments).result(WAIT_S)

    def sample(self, name, **labels):
        return self.metrics.get_sample_value(f"longtail_{name}", labels)

    @property
    def loaded(self):
        return sorted(self.manager.serving().models)

    @property
    def default(self):
        return self.manager.get().version


@pytest.fixture
def deploy(registry, make_loader):
    deployments = []

    def start(load=None, **options):
        deployments.append(Deployment(registry, load or make_loader(), **options))
        deployments[-1].started.result(WAIT_S)
        return deployments[-1]

    yield start
    for each in deployments:
        each.redeployer.close()


def damage(registry, version):
    weights = registry.folder / str(version) / "retrieval.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")


def when_freed(model):
    """Return an event that comes when nobody holds the predictor of a model any more."""
    freed = threading.Event()
    weakref.finalize(model.predictor, freed.set)
    return freed


def test_the_alias_is_followed_when_it_has_moved(deploy, registry):
    deployment = deploy()
    registry.activate(1)
    assert deployment.default == 2
    deployment.look()
    assert (deployment.default, deployment.loaded) == (1, [1])
    assert deployment.sample("model_changes_total", action="follow", result="done") == 1


def test_a_default_of_a_fixed_number_stays_when_the_alias_moves(deploy, registry, publish):
    deployment = deploy(versions=(1, "current"))
    version = publish()
    deployment.look()
    assert (deployment.default, deployment.loaded) == (1, [1, version])
    assert deployment.manager.get("current").version == version


def test_the_watch_follows_by_itself(deploy, registry, make_loader):
    loader = make_loader(gate=threading.Event())
    loader.gate.set()
    deployment = deploy(loader, watch_interval_s=0.001)
    reached = threading.Event()

    def load(bundle):
        reached.set()
        return loader(bundle)

    deployment.loader._load = load
    registry.activate(1)
    assert reached.wait(WAIT_S)
    deployment.look()
    assert deployment.default == 1


def test_activating_and_rolling_back_move_the_alias_in_the_service_and_in_the_registry(
    deploy, registry
):
    deployment = deploy()
    change = deployment.do("activate", 1)
    assert (deployment.default, registry.current()) == (1, 1)
    assert change.serving is deployment.manager.serving()
    assert deployment.sample("model_traffic_share", version="1") == 1.0
    deployment.do("rollback")
    assert (deployment.default, registry.current()) == (2, 2)


def test_a_rollback_to_nothing_or_to_a_damaged_version_moves_nothing(deploy, registry):
    deployment = deploy()
    damage(registry, 1)
    with pytest.raises(ChangeError, match="version 1 can't be loaded"):
        deployment.do("rollback")
    registry.remove(1)
    with pytest.raises(ChangeError, match="no earlier version"):
        deployment.do("rollback")
    assert (deployment.default, registry.current()) == (2, 2)


def test_a_version_loaded_beside_stays_until_it_is_unloaded(deploy, registry):
    deployment = deploy()
    deployment.do("load", 1)
    assert deployment.loaded == [1, 2]
    deployment.do("activate", 1)
    assert deployment.loaded == [1]
    deployment.do("activate", 2)
    assert deployment.loaded == [1, 2]
    deployment.do("unload", 1)
    assert deployment.loaded == [2]


def test_what_answers_requests_is_not_unloaded(deploy):
    deployment = deploy(canary=Canary(1, 0.5))
    for version in (1, 2):
        with pytest.raises(ChangeError, match="it is the default, or 'current', or the canary"):
            deployment.do("unload", version)
    assert deployment.loaded == [1, 2]


@pytest.mark.parametrize("action", ["load", "activate"])
def test_a_damaged_version_leaves_the_old_one_and_says_why(deploy, registry, caplog, action):
    deployment = deploy()
    damage(registry, 1)
    with pytest.raises(ChangeError, match=r"version 1 can't be loaded: .*sha256"):
        deployment.do(action, 1)
    assert (deployment.loaded, registry.current()) == ([2], 2)
    state, problem = deployment.redeployer.state_of(1)
    assert state == "failed"
    assert "sha256" in problem
    assert "sha256" in caplog.text
    assert deployment.sample("model_load_duration_seconds_count", result="failed") == 1


def test_a_damaged_version_under_the_alias_leaves_the_old_one(deploy, registry, publish):
    deployment = deploy()
    version = publish()
    damage(registry, version)
    deployment.look()
    assert deployment.default == 2
    assert "sha256" in deployment.redeployer.problem
    assert deployment.sample("registry_problem") == 1


def test_a_registry_out_of_reach_leaves_the_old_one_until_it_is_back(deploy, registry, caplog):
    deployment = deploy()
    away = registry.folder.with_name("away")
    registry.folder.rename(away)
    deployment.look()
    deployment.look()
    assert deployment.default == 2
    assert "is not there any more; restore the folder" in deployment.redeployer.problem
    assert caplog.text.count("can't be followed") == 1
    away.rename(registry.folder)
    deployment.look()
    assert deployment.redeployer.problem is None
    assert deployment.sample("registry_problem") == 0


def test_what_failed_at_the_start_is_tried_again(deploy, registry, make_loader):
    loader = make_loader(failure=OSError("inner path"))
    deployment = deploy(loader, watch_interval_s=3600)
    with pytest.raises(NotReadyError, match="failed with OSError; see the log; mend it, then the"):
        deployment.manager.serving()
    for _ in range(3):  # the second time it is let be
        deployment.look()
    assert deployment.sample("model_changes_total", action="start", result="failed") == 3
    loader.failure = None
    for _ in range(4):
        deployment.look()
    assert deployment.default == 2


@pytest.mark.parametrize("versions", [("current",), (1, "current")])
def test_a_start_falls_back_to_the_last_good_version_and_says_so(
    deploy, registry, publish, make_loader, caplog, versions
):
    publish()
    damage(registry, 3)
    damage(registry, 2)
    deployment = deploy(versions=versions, watch_interval_s=3600)
    serving = deployment.manager.serving()
    assert (deployment.default, deployment.loaded, serving.current) == (1, [1], 1)
    assert "version 3 can't be loaded" in deployment.redeployer.problem
    assert "version 1 answers, which was current before" in deployment.redeployer.problem
    assert deployment.redeployer.problem in caplog.text
    assert deployment.sample("registry_problem") == 1
    assert registry.current() == 3
    deployment.look()
    assert (deployment.default, deployment.sample("registry_problem")) == (1, 1)
    deployment.do("activate", 1)
    assert deployment.redeployer.problem is None
    assert deployment.sample("registry_problem") == 0


def test_a_version_that_is_mended_takes_over_from_the_one_before(deploy, registry, make_loader):
    def load(bundle):
        if bundle.folder.name == "2" and failing:
            raise OSError
        return make_loader()(bundle)

    failing = True
    deployment = deploy(load, watch_interval_s=3600)
    assert (deployment.default, deployment.sample("registry_problem")) == (1, 1)
    failing = False
    deployment.look()
    assert (deployment.default, deployment.sample("registry_problem")) == (2, 0)


def test_a_fixed_version_has_none_to_fall_back_to(deploy, registry):
    damage(registry, 2)
    deployment = deploy(versions=(2, "current"))
    with pytest.raises(NotReadyError, match="loading the models failed: version 2"):
        deployment.manager.serving()


def test_a_warm_up_that_does_not_end_fails_the_load_and_the_old_model_stays(
    deploy, make_loader, fake_predictor
):
    gate = threading.Event()

    class Endless(fake_predictor):
        def predict(self, texts, **keywords):
            assert gate.wait(WAIT_S)
            return super().predict(texts, **keywords)

    loader = make_loader()
    deployment = deploy(loader, warmup_timeout_s=0.5)
    assert deployment.loaded == [2]
    loader.predictor_class = Endless
    with pytest.raises(ChangeError, match=r"version 1 can't be loaded: .* more than 0.5 s"):
        deployment.do("load", 1)
    gate.set()
    assert deployment.loaded == [2]
    state, problem = deployment.redeployer.state_of(1)
    assert state == "failed" and "more than 0.5 s" in problem


def test_an_alias_that_cannot_be_moved_keeps_the_old_model(deploy, registry, monkeypatch):
    deployment = deploy()

    def refuse(*_, **__):
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(registry, "activate", refuse)
    with pytest.raises(ChangeError, match="'current' can't be moved to version 1"):
        deployment.do("activate", 1)
    assert deployment.loaded == [2]


def test_a_model_in_use_drains_and_is_freed_when_its_last_request_ends(deploy):
    deployment = deploy(load=None)
    in_flight = deployment.manager.get()
    freed = when_freed(in_flight)
    deployment.loader._load.loaded.clear()  # the fake loader would hold it
    deployment.do("activate", 1)
    assert deployment.redeployer.state_of(2)[0] == "draining"
    assert deployment.sample("model_draining", version="2") == 1
    assert in_flight.predictor.predict(["a"])
    del in_flight
    assert freed.wait(WAIT_S)
    deployment.look()
    assert deployment.redeployer.state_of(2)[0] == "not-loaded"
    assert deployment.sample("model_draining", version="2") is None


def test_a_circle_that_holds_an_old_model_is_found_at_the_next_look(deploy):
    deployment = deploy()
    freed = when_freed(deployment.manager.get())
    deployment.loader._load.loaded.clear()
    circle = [deployment.manager.get()]
    circle.append(circle)
    gc.disable()
    try:
        del circle
        deployment.do("activate", 1)
        assert not freed.is_set()
        deployment.look()
        assert freed.wait(WAIT_S)
    finally:
        gc.enable()


def test_a_model_that_needs_more_memory_than_there_is_is_not_loaded(deploy, monkeypatch):
    deployment = deploy(memory_factor=2.0, available=10**6)
    # The labels are not read before.
    monkeypatch.setattr("longtail.models.bundle.bundle.LabelCatalogue.from_jsonl", None)
    deployment.loader._available = lambda: 100
    with pytest.raises(ChangeError, match=r"MiB of memory \(2 times its files.*\), and 0 MiB"):
        deployment.do("load", 1)
    assert deployment.loaded == [2]


def without_filters(predict, texts, options):
    return 1 / 0 if options.get("label_filter") else predict(texts, **options)


def no_numbers(predict, texts, options):
    predictions = predict(texts, **options)
    object.__setattr__(predictions[0].labels[0], "score", float("nan"))
    return predictions


def too_large(*_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore.")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (without_filters, "version 1 can't be loaded: .*ZeroDivisionError"),
        (no_numbers, "gave label 'L0' the score nan"),
        (too_large, r"the GPU's memory is too small \(CUDA out .* 2 GiB\.\); unload a version"),
        (None, r"the GPU's memory is too small"),  # while it is loaded
    ],
)
def test_a_version_that_fails_its_trial_is_not_activated(
    deploy, registry, fake_predictor, answer, words
):
    class Broken(fake_predictor):
        def __init__(self, bundle):
            super().__init__(bundle)
            if answer is None:
                too_large()

        def predict(self, texts, **options):
            return answer(super().predict, texts, options)

    deployment = deploy()
    deployment.loader._load = Broken
    with pytest.raises(ChangeError, match=words):
        deployment.do("activate", 1)
    assert (deployment.default, registry.current()) == (2, 2)


def test_a_canary_comes_changes_its_share_becomes_the_default_and_ends(deploy):
    deployment = deploy()
    deployment.do("set_canary", Canary(1, 0.25))
    assert deployment.loaded == [1, 2]
    assert deployment.sample("model_traffic_share", version="1") == 0.25
    deployment.do("set_canary", Canary(1, 1.0))
    assert deployment.manager.get_to_predict().version == 1
    assert deployment.default == 2
    deployment.do("activate", 1)
    assert (deployment.loaded, deployment.manager.serving().canary) == ([1], None)
    deployment.do("set_canary", None)
    assert deployment.loaded == [1]


def test_in_place_the_old_model_is_gone_before_the_new_one_is_loaded(deploy, make_loader):
    loader = make_loader()
    deployment = deploy(loader, swap_mode="resource-preserving")
    freed = when_freed(deployment.manager.get())
    loader.loaded.clear()
    seen = []

    def load(bundle):
        seen.append(freed.is_set())
        with pytest.raises(NotReadyError, match="version 1 is being loaded in place"):
            deployment.manager.get()
        return loader(bundle)

    deployment.loader._load = load
    deployment.do("activate", 1)
    assert seen == [True]
    assert (deployment.default, deployment.loaded) == (1, [1])


def test_in_place_a_damaged_version_costs_no_pause(deploy, registry):
    deployment = deploy(swap_mode="resource-preserving")
    before = deployment.manager.serving()
    damage(registry, 1)
    with pytest.raises(ChangeError, match="sha256"):
        deployment.do("activate", 1)
    assert deployment.manager.serving() is before


def test_in_place_the_old_model_comes_back_where_the_new_one_fails(deploy, make_loader):
    loader = make_loader()
    deployment = deploy(loader, swap_mode="resource-preserving")
    loader.loaded.clear()

    def load(bundle):
        return loader(bundle) if bundle.folder.name == "2" else 1 / 0

    deployment.loader._load = load
    with pytest.raises(ChangeError, match="failed with ZeroDivisionError"):
        deployment.do("activate", 1)
    assert (deployment.default, deployment.loaded) == (2, [2])


def test_in_place_what_failed_is_tried_again_only_when_the_registry_changes(
    deploy, registry, publish, make_loader
):
    """Each trial would cost a pause: the old model is gone meanwhile."""
    tried, loader = [], make_loader()

    def load(bundle):
        tried.append(int(bundle.folder.name))
        found = 1 / 0 if tried[-1] == bad else loader(bundle)
        loader.loaded.clear()  # it would hold what is to go
        return found

    bad = 3
    deployment = deploy(load, swap_mode="resource-preserving", watch_interval_s=3600)
    publish()
    for _ in range(10):
        deployment.look()
    assert tried.count(3) == 1
    assert "version 3 can't be loaded" in deployment.redeployer.problem
    assert (deployment.default, deployment.sample("registry_problem")) == (2, 1)
    registry.activate(1)
    deployment.look()
    assert (tried[-1], deployment.default) == (1, 1)


def test_in_place_a_model_that_requests_keep_holding_stays(deploy):
    deployment = deploy(swap_mode="resource-preserving", drain_timeout_s=0.0)
    in_flight = deployment.manager.get()
    with pytest.raises(ChangeError, match="requests still hold version 2 after 0 s"):
        deployment.do("activate", 1)
    assert deployment.manager.get().predictor is in_flight.predictor


def test_stopping_cancels_what_is_asked_and_lets_no_second_model_load(deploy, make_loader):
    gate, busy = threading.Event(), threading.Event()
    deployment = deploy(make_loader())

    def load(bundle):
        busy.set()
        assert gate.wait(WAIT_S)
        raise CancelledError

    deployment.loader._load = load
    begun = deployment.redeployer.load(1)
    assert busy.wait(WAIT_S)
    assert deployment.redeployer.state_of(1) == ("loading", None)
    deployment.redeployer.close()
    with pytest.raises(CancelledError):
        begun.result(WAIT_S)
    gate.set()
    assert deployment.redeployer.load(1).cancelled()
    assert deployment.default == 2
