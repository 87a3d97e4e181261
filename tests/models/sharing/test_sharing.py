"""Bundles sent elsewhere and fetched again: the same bytes, or one sentence that says why not."""

import json
import os
import re
import shutil
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import fsspec
import httpx
import huggingface_hub
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from longtail.models.bundle.manifest import MANIFEST_NAME, digest_of
from longtail.models.bundle.registry import Registry
from longtail.models.errors import (
    BundleCorruptError,
    BundleError,
    BundleNotFoundError,
    ConfigError,
)
from longtail.models.sharing.card import model_card
from longtail.models.sharing.transfer import pull, push


class FakeHub(MemoryFileSystem):
    """The file system and the interface of a Hub, in memory; revisions are not told apart."""

    protocol = "hf"
    commits: ClassVar[list[str | None]]
    is_offline = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(re.sub("^hf://|@[^/]*", "", path))

    def info(self, path, **options):
        if self.is_offline:
            raise httpx.ConnectError("no network")
        return super().info(path, **options)

    def create_repo(self, repository: str, *, private: bool, exist_ok: bool) -> None:
        assert private and exist_ok

    def create_commit(self, repository, operations, *, commit_message, revision) -> None:
        assert commit_message
        self.commits.append(revision)
        for operation in operations:
            with operation.as_file() as file:
                self.pipe_file(f"{repository}/{operation.path_in_repo}", file.read())


@pytest.fixture
def hub(monkeypatch):
    fake = type("Fake", (FakeHub,), {"store": {}, "pseudo_dirs": [""], "commits": []})
    fsspec.register_implementation("hf", fake, clobber=True)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda **_: fake())
    yield fake
    fsspec.register_implementation("hf", huggingface_hub.HfFileSystem, clobber=True)


@pytest.fixture
def memory():
    yield
    files = fsspec.filesystem("memory")
    for path in files.ls("/", detail=False):
        files.rm(path, recursive=True)


@pytest.fixture(params=["folder", "zip", "file://", "memory://", "memory zip", "hf://"])
def uri(request, tmp_path, hub, memory):
    return {
        "folder": str(tmp_path / "there" / "model"),
        "zip": str(tmp_path / "there" / "model.zip"),
        "file://": (tmp_path / "uri").as_uri(),
        "memory://": "memory://shop/model",
        "memory zip": "memory://shop/model.zip",
        "hf://": "hf://owner/model@main",
    }[request.param]


@pytest.fixture
def bundle(trained_sparse):
    return trained_sparse.bundle


@pytest.fixture
def mirror(tmp_path):
    return Registry(tmp_path / "mirror")


def send(bundle, uri: str, **options) -> bool:
    return push(bundle, uri, "# Card\n", **({"replace": False} | options))


def fetch(uri: str, registry: Registry, **options) -> int:
    return pull(uri, registry, **({"activate": True} | options))


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_comes_back_is_what_was_sent(bundle, uri, mirror):
    assert send(bundle, uri)
    assert fetch(uri, mirror) == 1
    assert content_of(mirror.folder / "1") == content_of(bundle.folder)
    assert mirror.current() == 1


def test_another_model_is_replaced_only_if_asked(bundle, uri, tmp_path, mirror):
    other = changed(bundle, tmp_path / "other", training_document_count=999)
    send(bundle, uri)
    with pytest.raises(BundleError, match=r"holds another bundle .*--overwrite"):
        send(other, uri)
    assert send(other, uri, replace=True)
    fetch(uri, mirror)
    assert mirror.open(1).manifest.training_document_count == 999


def changed(bundle, folder: Path, **fields):
    """Return a copy of a bundle whose manifest says something else, with the right digest."""
    shutil.copytree(bundle.folder, folder)
    content = json.loads((folder / MANIFEST_NAME).read_text()) | fields
    content["digest"] = digest_of(content)
    text = json.dumps(content, ensure_ascii=True, indent=1, sort_keys=True) + "\n"
    (folder / MANIFEST_NAME).write_text(text)
    manifest = type(bundle.manifest).from_json(text, "copy")
    return replace(bundle, folder=folder, manifest=manifest)


def test_a_hub_out_of_reach_is_not_an_empty_one(hub, bundle, mirror):
    hub.is_offline = True
    for act in (lambda: send(bundle, "hf://a/b"), lambda: fetch("hf://a/b", mirror)):
        with pytest.raises(BundleError, match=r"'hf://a/b': can't be reached.*no network"):
            act()


def test_a_file_that_was_changed_there_never_gets_a_version(bundle, tmp_path, mirror):
    folder = tmp_path / "there"
    send(bundle, str(folder))
    name = next(iter(bundle.manifest.files))
    for spoilt in (b"", b"x" * bundle.manifest.files[name].size_bytes, b"x" * 10**7):
        (folder / name).write_bytes(spoilt)
        with pytest.raises(BundleCorruptError, match=f"file '{name}'"):
            fetch(str(folder), mirror)
        assert [x for x in mirror.folder.iterdir() if x.is_dir()] == []
    (folder / name).unlink()
    with pytest.raises(BundleCorruptError, match=f"no {name} there"):
        fetch(str(folder), mirror)
    assert mirror.versions() == []


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "a\\b", ""])
def test_names_that_leave_the_folder_are_refused(bundle, tmp_path, mirror, name):
    files = {
        path: {"sha256": x.sha256, "size_bytes": x.size_bytes}
        for path, x in bundle.manifest.files.items()
    }
    evil = changed(
        bundle, tmp_path / "evil", files=files | {name: {"sha256": "0" * 64, "size_bytes": 1}}
    )
    with pytest.raises(BundleCorruptError, match="names a file outside it"):
        fetch(str(evil.folder), mirror)
    assert not (tmp_path / "escaped").exists()


def test_a_digest_can_be_insisted_on(bundle, tmp_path, mirror):
    uri = str(tmp_path / "model.zip")
    send(bundle, uri)
    with pytest.raises(BundleCorruptError, match="expected one that begins with '00000000'"):
        fetch(uri, mirror, digest="00000000")
    with pytest.raises(ConfigError, match="8 to 64 digits"):
        fetch(uri, mirror, digest="ABC")
    assert fetch(uri, mirror, digest=bundle.manifest.digest[:8], activate=False) == 1
    assert mirror.current() is None


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_unpacks_in_one_go_is_refused(tmp_path, mirror, method):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(MANIFEST_NAME, b" " * 10_000)
    with pytest.raises(BundleCorruptError, match="expected stored or deflated"):
        fetch(str(path), mirror)


def test_a_zip_may_have_the_bundle_in_a_folder(bundle, tmp_path, mirror):
    path = shutil.make_archive(str(tmp_path / "model"), "zip", bundle.folder.parent, "1")
    assert fetch(path, mirror) == 1
    assert content_of(mirror.folder / "1") == content_of(bundle.folder)


def test_a_damaged_zip_is_told_from_none_and_can_be_replaced(bundle, tmp_path, mirror):
    path = tmp_path / "model.zip"
    with pytest.raises(BundleNotFoundError, match=r"no .*model.zip there"):
        fetch(str(path), mirror)
    path.write_bytes(b"PK")
    with pytest.raises(BundleCorruptError, match="BadZipFile"):
        fetch(str(path), mirror)
    with pytest.raises(BundleError, match="--overwrite"):
        send(bundle, str(path))
    assert send(bundle, str(path), replace=True) and fetch(str(path), mirror) == 1


def test_nothing_but_the_version_is_left_of_a_pull(bundle, uri, mirror):
    send(bundle, uri)
    fetch(uri, mirror)
    left = {path.name for path in mirror.folder.iterdir()}
    assert left == {"1", ".lock", "registry.json", "changes.jsonl"}


def test_a_bundle_that_cannot_be_loaded_gets_no_version(bundle, tmp_path, mirror):
    uri = str(tmp_path / "there")
    send(bundle, uri)

    def refuse(found):
        raise BundleCorruptError(f"{found.manifest.label_count} labels: no")

    with pytest.raises(BundleCorruptError, match="labels: no"):
        fetch(uri, mirror, check=refuse)
    assert mirror.versions() == []


def test_the_card_has_the_measures_of_dev_and_text_that_is_no_markup(bundle):
    forged = replace(bundle.manifest, longtail_version="1 | <b>`x`\n# y")
    card = model_card(replace(bundle, manifest=forged), (), ["a <i>", "b"], licence="mit", data="x")
    assert card.startswith("---\nlibrary_name: longtail") and '\nlicense: "mit"\n---\n' in card
    assert "\\<b\\>\\`x\\`?\\# y" in card and "- a \\<i\\>\n- b" in card
    values = bundle.manifest.metrics["dev"]["sparse"]
    assert (
        f"| sparse | {100 * values['all']['P@1']:.1f} | {100 * values['all']['P@5']:.1f} |" in card
    )
    assert f"| 2-9 | {100 * values['2-9']['R@10']:.1f} | " in card
    assert bundle.manifest.digest in card


@pytest.mark.parametrize("name", [MANIFEST_NAME, "labels.jsonl"])
@pytest.mark.parametrize("is_linked", [False, True])
def test_a_pipe_in_a_folder_is_refused_without_waiting_for_its_writer(
    bundle, tmp_path, mirror, name, is_linked
):
    folder, refused = tmp_path / "there", []
    shutil.copytree(bundle.folder, folder)
    (folder / name).unlink()
    pipe = tmp_path / "pipe" if is_linked else folder / name
    os.mkfifo(pipe)
    if is_linked:
        (folder / name).symlink_to(pipe)

    def try_out() -> None:
        with pytest.raises(BundleError, match=f"no {name} there"):
            fetch(str(folder), mirror)
        refused.append(name)

    trial = threading.Thread(target=try_out, daemon=True)
    trial.start()
    trial.join(60)
    assert refused == [name]
