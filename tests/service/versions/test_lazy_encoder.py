"""An encoder that the default scorer does not need is loaded when it is first asked for."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from longtail.models.errors import BundleCorruptError
from tests.service.conftest import Loader, started


@pytest.fixture
def registry_folder(publish, tmp_path):
    publish(default_scorer="sparse")
    return tmp_path / "registry"


def ask(client, **options):
    return client.post("/v1/predict", json={"text": "a text", "k": 1} | options)


def said(client):
    """Return the scorers that wait for their encoder, as two routes have them."""
    (model,) = client.get("/v1/models").json()["models"]
    return client.get("/readyz").json()["waiting_scorers"], model["waiting_scorers"]


def test_the_first_requests_that_need_it_load_it_once(registry_folder):
    loader = Loader()
    with started(registry_folder, loader) as client:
        before = ask(client).json()
        assert said(client) == (["retrieval"], ["retrieval"])
        assert client.get("/livez").json() == {"status": "alive"}
        assert [each.left_out for each in loader.loaded] == [("retrieval",)]
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: ask(client, scorer="retrieval"), range(4)))
        assert [each.status_code for each in found] == [200] * 4
        assert [each.left_out for each in loader.loaded] == [("retrieval",), ()]
        assert ask(client).json()["results"] == before["results"]
        assert said(client) == ([], [])


def test_a_setting_loads_it_at_the_start(registry_folder):
    loader = Loader()
    with started(registry_folder, loader, preload=True) as client:
        assert ask(client, scorer="retrieval").status_code == 200
        assert [each.left_out for each in loader.loaded] == [()]


@pytest.mark.parametrize("how", ["explain", "label"])
def test_explanations_and_details_of_labels_need_it(registry_folder, how):
    loader = Loader()
    with started(registry_folder, loader) as client:
        answer = ask(client, explain=True) if how == "explain" else client.get("/v1/labels/L1")
        assert answer.status_code == 200
    assert len(loader.loaded) == 2


def test_one_that_cannot_be_loaded_fails_only_requests_that_need_it(registry_folder):
    loader = Loader()
    with started(registry_folder, loader) as client:
        loader.failure = BundleCorruptError("its weights are gone")
        refused = ask(client, scorer="retrieval")
        assert (refused.status_code, ask(client).status_code) == (503, 200)
        assert "its weights are gone" in refused.json()["detail"]
        assert client.get("/readyz").status_code == 200
        loader.failure = None
        assert ask(client, scorer="retrieval").status_code == 200


def test_other_requests_are_answered_while_it_is_loaded(registry_folder):
    import threading

    loader = Loader()
    with started(registry_folder, loader) as client, ThreadPoolExecutor(1) as threads:
        loader.gate = threading.Event()
        waiting = threads.submit(ask, client, scorer="retrieval")
        assert ask(client).status_code == 200 and not waiting.done()
        loader.gate.set()
        assert waiting.result().status_code == 200
