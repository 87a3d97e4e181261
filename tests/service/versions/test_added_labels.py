"""Labels added to a version: by the command, and in the answers of a service after the swap."""

import shutil
import time

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from longtail.cli import command
from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleError
from longtail.service.app import create_app
from longtail.service.settings import Settings

WAIT_S = 300
ASKED = {"text": "fishing rights in the sea", "scorer": "retrieval", "include": ["NEW-1"]}


@pytest.fixture
def copied(trained, tmp_path):
    """The registry of a trained model, to be changed."""
    shutil.copytree(trained.registry.folder, tmp_path / "copied")
    return Registry(tmp_path / "copied")


@pytest.fixture
def add(copied):
    app = command()

    def invoke(*words, at=copied.folder):
        result = CliRunner().invoke(app, ["registry", "add-label", *words, "--registry", str(at)])
        if result.exception is not None:
            raise result.exception
        return result.stdout

    return invoke


def test_a_service_answers_with_a_new_label_after_the_swap(add, copied):
    settings = Settings(registry=copied.folder, watch_interval_s=0.05)
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert "NEW-1" in client.post("/v1/predict", json=ASKED).json()["detail"]
        add("NEW-1", "fishing rights", "--activate")
        wait_until(lambda: client.post("/v1/predict", json=ASKED).status_code == 200)
        answer = client.post("/v1/predict", json=ASKED).json()
        assert answer["model"]["version"] == 2
        assert answer["results"][0]["labels"][0]["name"] == "fishing rights"
        assert client.get("/v1/labels/NEW-1").json()["scorers"] == [
            "retrieval",
            "hybrid",
            "names",
            "fast",
            "ensemble",
        ]


def wait_until(is_so):
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_two_calls_in_a_row_stack_or_are_refused_with_what_to_choose(add, copied):
    add("NEW-1", "fishing rights")
    with pytest.raises(BundleError, match=r"version 2 is version 1 with 1 more labels \('NEW-1'\)"):
        add("NEW-2", "whales")
    assert copied.versions() == [1, 2]
    add("NEW-2", "whales", "--version", "2")
    assert [label.id for label in copied.open(3).catalogue][-2:] == ["NEW-1", "NEW-2"]
    add("NEW-3", "seals", "--version", "1")
    assert [label.id for label in copied.open(4).catalogue][-1] == "NEW-3"
    assert "Version 2 has" in add("NEW-1", "fishing rights", "--version", "1")
