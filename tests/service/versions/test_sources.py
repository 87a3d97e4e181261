"""A registry elsewhere: what is copied when, and what happens when it can't be."""

import json
import shutil

import pytest

from longtail.models.bundle.manifest import FileInfo
from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleCorruptError, BundleError
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

        def write(self, chunk):
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
