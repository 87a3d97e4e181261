"""A registry elsewhere: what is copied when, and what happens when it can't be."""

import json
import shutil
import time

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from longtail.cli import command
from longtail.models.bundle.manifest import FileInfo
from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleCorruptError, BundleError
from longtail.models.predict.predictor import Predictor
from longtail.service.app import create_app
from longtail.service.settings import Settings
from longtail.service.versions.loading import RegistrySource


@pytest.fixture
def mirror(tmp_path):
    return Registry(tmp_path / "mirror")


@pytest.fixture
def source(registry, mirror):
    return RegistrySource(registry.folder.as_uri(), mirror)


def test_versions_and_the_alias_are_copied_whole(source, registry, mirror):
    source.refresh()
    source.fetch(2)
    assert mirror.current() == 2
    assert mirror.open(2).manifest.digest == registry.open(2).manifest.digest
    assert mirror.versions() == [2]


def test_an_alias_moved_here_stays_until_it_moves_there(source, registry, mirror):
    source.refresh()
    source.fetch(1)
    mirror.activate(1)
    source.refresh()
    assert mirror.current() == 1
    registry.activate(1)
    registry.activate(2)
    source.refresh()
    assert mirror.current() == 2


NUMBER = f'{{"current": {10**300}, "history": [], "published_at": {{}}}}'


@pytest.mark.parametrize("content", ["{", "\xff", "[]", '{"current": "2"}', "[" * 100_000, NUMBER])
def test_a_registry_file_that_cannot_be_read_is_said_so_and_not_copied(
    source, registry, mirror, content
):
    source.refresh()
    (registry.folder / "registry.json").write_text(content, encoding="latin-1")
    with pytest.raises(BundleError, match=r"registry\.json can't be read .* mend it there"):
        source.refresh()
    assert mirror.current() == registry.versions()[-1]


def test_a_disk_that_fills_while_copying_leaves_nothing(source, mirror, monkeypatch):
    real = type(mirror.folder).open
    monkeypatch.setattr(
        type(mirror.folder),
        "open",
        lambda path, mode="r", **o: real(path, mode, **o) if "w" not in mode else _full(real, path),
    )
    with pytest.raises(BundleError, match=r"No space left on device.*make room"):
        source.fetch(2)
    monkeypatch.undo()
    assert list(mirror.folder.iterdir()) == []


def _full(real, path):
    file = real(path, "wb", buffering=0)

    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            file.close()

        def writelines(self, chunks):
            raise OSError(28, "No space left on device")

    return Full()


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a\\..\\x"])
def test_a_manifest_that_names_files_outside_is_refused(registry, mirror, monkeypatch, name):
    source = RegistrySource(registry.folder.as_uri(), mirror)
    manifest = registry.open(2).manifest
    monkeypatch.setattr(
        "longtail.models.sharing.transfer.Manifest.from_json",
        lambda text, where: type("M", (), {"files": manifest.files | {name: FileInfo("", 0)}}),
    )
    with pytest.raises(BundleCorruptError, match="names a file outside"):
        source.fetch(2)


def test_a_service_serves_and_follows_a_registry_elsewhere(open_admin, registry, tmp_path):
    there = tmp_path / "there"
    shutil.copytree(registry.folder, there)
    shutil.rmtree(registry.folder)
    with open_admin(registry_source=there.as_uri()) as client:
        assert client.get("/readyz").status_code == 200
        state = json.loads((there / "registry.json").read_text())
        (there / "registry.json").write_text(json.dumps(state | {"current": 1}))
        redeployer = client.app.state.service.redeployer
        redeployer.look().result(20)
        assert client.post("/v1/predict", json={"text": "a"}).json()["model"]["version"] == 1
        shutil.rmtree(there)
        redeployer.look().result(20)
        assert "no registry.json" in client.get("/v1/models").json()["problem"]
        assert client.post("/v1/predict", json={"text": "a"}).status_code == 200


TEXT = "Regulation of the Council on imports of fish"


@pytest.fixture
def sparse_client(trained_sparse, wait_for_loading):
    with TestClient(create_app(Settings(registry=trained_sparse.registry.folder))) as client:
        wait_for_loading(client)
        yield client


def test_a_model_without_an_encoder_answers_as_its_predictor_does(sparse_client, trained_sparse):
    answer = sparse_client.post("/v1/predict", json={"text": TEXT, "k": 3}).json()
    (wanted,) = Predictor.of_bundle(trained_sparse.bundle, device="cpu").predict([TEXT], k=3)
    assert answer["scorer"] == "sparse"
    (found,) = answer["results"]
    assert [label["id"] for label in found["labels"]] == [label.id for label in wanted.labels]
    probabilities = [label["probability"] for label in found["labels"]]
    assert probabilities == [label.probability for label in wanted.labels]
    assert 1 > probabilities[0] >= probabilities[-1] > 0
    assert (found["num_tokens"], found["truncated"]) == (8, False)


@pytest.mark.parametrize(
    ("extra", "words"),
    [({"scorer": "retrieval"}, "scorer 'retrieval' is not in this bundle; it has sparse")],
)
def test_what_needs_an_encoder_is_refused(sparse_client, extra, words):
    answer = sparse_client.post("/v1/predict", json={"text": TEXT} | extra)
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith(words)


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
    with pytest.raises(BundleError, match=r"version 2 is version 1 with 1 more label \('NEW-1'\)"):
        add("NEW-2", "whales")
    assert copied.versions() == [1, 2]
    add("NEW-2", "whales", "--version", "2")
    assert [label.id for label in copied.open(3).catalogue][-2:] == ["NEW-1", "NEW-2"]
    add("NEW-3", "seals", "--version", "1")
    assert [label.id for label in copied.open(4).catalogue][-1] == "NEW-3"
    assert "Version 2 has" in add("NEW-1", "fishing rights", "--version", "1")
