"""Models by any address: a copy is made once, verified, and opened like a folder."""

import fsspec
import pytest

import longtail
from longtail.models.bundle.manifest import MANIFEST_NAME
from longtail.models.bundle.registry import STATE_NAME
from longtail.models.errors import BundleCorruptError, BundleNotFoundError, ConfigError
from longtail.models.sharing import transfer
from longtail.models.sharing.transfer import find_model


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    yield files
    for path in files.ls("/", detail=False):
        files.rm(path, recursive=True)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "longtail"


def test_a_registry_and_a_bundle_behind_a_uri_are_copied_once(
    memory, trained_sparse, cache, monkeypatch
):
    memory.put(str(trained_sparse.registry.folder), "/registry", recursive=True)
    digest = trained_sparse.bundle.manifest.digest
    found = find_model("memory://registry")
    assert (found.version, found.manifest.digest) == (trained_sparse.version, digest)
    assert not cache.exists()  # the manifest is enough to find it
    assert longtail.load("memory://registry").bundle.folder == cache / digest
    monkeypatch.setattr(transfer, "fetch", None)  # what is there is not fetched again
    assert longtail.load("memory://registry", 1).predict("milk", k=1).labels
    alone = find_model(f"memory://registry/{trained_sparse.version}")
    assert (alone.version, alone.open().folder) == (None, cache / digest)
    with pytest.raises(ConfigError, match="is one bundle"):
        find_model(f"memory://registry/{trained_sparse.version}", 2)


def test_a_bundle_that_is_cut_short_is_not_kept(memory, trained_sparse, cache):
    memory.put(str(trained_sparse.bundle.folder), "/bundle", recursive=True)
    name = next(iter(trained_sparse.bundle.manifest.files))
    memory.pipe_file(f"/bundle/{name}", b"")
    with pytest.raises(BundleCorruptError, match=name):
        find_model("memory://bundle").open()
    memory.put(str(trained_sparse.bundle.folder / name), f"/bundle/{name}")
    assert find_model("memory://bundle").open().folder.name in {x.name for x in cache.iterdir()}


@pytest.mark.parametrize("version", ["current", "other", 7])
def test_no_model_at_a_uri(memory, version):
    memory.pipe_file("/empty/file", b"")
    with pytest.raises(
        BundleNotFoundError, match=rf"{STATE_NAME}|no {version}/{MANIFEST_NAME} there"
    ):
        find_model("memory://empty", version)
