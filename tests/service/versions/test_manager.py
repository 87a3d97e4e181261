"""Which model answers a request."""

from types import SimpleNamespace

import pytest

from longtail.models.errors import NotReadyError
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
