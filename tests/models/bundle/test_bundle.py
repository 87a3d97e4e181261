"""A bundle is read exactly as it was written, or refused with the name of the file at fault."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from longtail.models.bundle import bundle as bundle_module
from longtail.models.bundle.bundle import open_bundle, read_manifest, write_bundle
from longtail.models.errors import BundleCorruptError, BundleError
from longtail.models.files.durable import read_json, write_json_durably
from longtail.models.kinds.storage import read_parts, write_parts
from longtail.models.labels.catalogue import Label, LabelCatalogue

FILES = (
    "classifier.json", "classifier.safetensors", "dual_encoder.safetensors", "encoder/config.json",
    "encoder/model.safetensors", "encoder/tokenizer.json", "encoder/tokenizer_config.json",
    "labels.jsonl", "linear.json", "linear.safetensors", "manifest.json", "retrieval.safetensors",
    "sparse.json", "sparse.safetensors",
)  # fmt: skip


def files_of(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def flipped(content: bytes, position: int, mask: int = 0x01) -> bytes:
    return content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :]


def test_a_bundle_holds_these_files_and_none_that_could_run_code(written_bundle):
    assert files_of(written_bundle) == sorted(FILES)
    assert {Path(name).suffix for name in FILES} == {".json", ".jsonl", ".safetensors"}


def test_reading_the_parts_gives_what_was_written(bundle, parts):
    found = read_parts(bundle)
    assert list(found.catalogue) == list(parts.catalogue)
    assert found.dense is not None and parts.dense is not None
    np.testing.assert_array_equal(found.dense.label_vectors, parts.dense.label_vectors)
    wanted = {
        name: value
        for name, value in parts.dense.encoder.state_dict().items()
        if ".pooler." not in name  # which nothing reads
    }
    assert {k: v.tolist() for k, v in found.dense.encoder.state_dict().items()} == {
        k: v.tolist() for k, v in wanted.items()
    }


def test_writing_the_same_parts_twice_gives_the_same_digest(parts, manifest, bundle, tmp_path):
    again = write_parts(tmp_path / "another-name", parts, manifest, tmp_path / "scratch")
    assert again == bundle.manifest


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_one_flipped_byte_in_any_file_is_refused(bundle_folder, name, where):
    path = bundle_folder / name
    content = path.read_bytes()
    position = {"first": 0, "middle": len(content) // 2, "last": len(content) - 1}[where]
    path.write_bytes(flipped(content, position))
    with pytest.raises(BundleError, match=f"bundle 'tiny': .*{name}.*"):
        open_bundle(bundle_folder)


def accepted_flips(folder: Path, flips: Iterable[tuple[int, int]]) -> list[int]:
    """Return the positions in the manifest at which a flipped byte is not noticed."""
    path = folder / "manifest.json"
    content = path.read_bytes()
    accepted = []
    for position, mask in flips:
        path.write_bytes(flipped(content, position, mask))
        try:
            read_manifest(folder)
        except BundleError:
            continue
        accepted.append(position)
    return accepted


def test_one_flipped_byte_in_the_manifest_is_refused(bundle_folder):
    size = (bundle_folder / "manifest.json").stat().st_size
    flips = ((position, (0x01, 0x80, 0x20, 0x10)[position % 4]) for position in range(0, size, 9))
    assert accepted_flips(bundle_folder, flips) == []


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_refused(bundle_folder, name):
    (bundle_folder / name).unlink()
    with pytest.raises(BundleError, match=name):
        open_bundle(bundle_folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", [0, 0.5])
def test_a_truncated_file_is_refused(bundle_folder, name, kept):
    path = bundle_folder / name
    os.truncate(path, int(path.stat().st_size * kept))
    with pytest.raises(BundleCorruptError, match=name):
        open_bundle(bundle_folder)


@pytest.mark.parametrize("name", ["extra.txt", "encoder/model.bin", "encoder/sub/weights.pt"])
def test_an_extra_file_is_refused(bundle_folder, name):
    (bundle_folder / name).parent.mkdir(exist_ok=True)
    (bundle_folder / name).write_bytes(b"?")
    with pytest.raises(BundleCorruptError, match=f"file '{name}' is not in the manifest; remove"):
        open_bundle(bundle_folder)


@pytest.mark.parametrize("kind", ["pipe", "socket", "link", "link to a device"])
def test_what_is_no_regular_file_is_refused_before_it_is_opened(
    bundle_folder, tmp_path, kind, monkeypatch
):
    name = "sparse.json"
    content = (bundle_folder / name).read_bytes()
    (bundle_folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(bundle_folder / name)
    elif kind == "socket":
        monkeypatch.chdir(bundle_folder)  # its path may be no longer than a hundred bytes
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(name)
    else:
        (tmp_path / "elsewhere").write_bytes(content)
        is_link = kind == "link"
        (bundle_folder / name).symlink_to(tmp_path / "elsewhere" if is_link else "/dev/zero")
    with pytest.raises(
        BundleCorruptError, match=r"file 'sparse\.json' can't be read \(it is not a"
    ):
        open_bundle(bundle_folder)


def test_a_manifest_nested_too_deeply_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(BundleCorruptError, match=r"not a bundle's manifest .*nested too deeply"):
        read_manifest(tmp_path)


@pytest.fixture
def arguments(tmp_path, manifest):
    """What `write_bundle` needs for a small bundle without a model."""
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    return {
        "manifest": manifest,
        "catalogue": LabelCatalogue([Label("a", "\u2028line\r\nbreaks")] * 1),
        "tensors": {"x.safetensors": {"x": np.arange(6).reshape(2, 3).T}},
        "texts": {"note.json": '{"a": 1}'},
        "encoder_folder": encoder,
    }


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


BUNDLE, DURABLE = "longtail.models.bundle.bundle", "longtail.models.files.durable"
STEPS = [
    *(f"{BUNDLE}.{step}" for step in ("save_file", "file_info", "shutil.copytree")),
    *(f"{DURABLE}.{step}" for step in ("share_like", "sync_tree", "move")),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_while_writing_leaves_no_folder(step, error, arguments, tmp_path, monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(step, fail)
    with pytest.raises(type(error)):
        write_bundle(tmp_path / "new", **arguments)
    assert left_in(tmp_path) == ["encoder"]


def test_a_folder_left_by_a_killed_writer_does_not_stop_the_next(arguments, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:  # a kill: nothing is cleaned up
        patch.setattr(bundle_module.shutil, "rmtree", lambda *args, **kwargs: None)
        patch.setattr(f"{DURABLE}.sync_tree", lambda folder: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_bundle(tmp_path / "new", **arguments)
    write_bundle(tmp_path / "new", **arguments)
    assert (tmp_path / "new" / "manifest.json").is_file()


def test_an_existing_folder_is_not_written_over(arguments, tmp_path):
    with pytest.raises(BundleError, match=r"'encoder'.* is there already"):
        write_bundle(tmp_path / "encoder", **arguments)
    assert left_in(tmp_path / "encoder") == ["config.json"]


def test_everything_is_synced_before_the_bundle_gets_its_name(arguments, tmp_path, monkeypatch):
    synced: set[tuple[int, int]] = set()

    def remember(handle: int) -> None:
        if not (tmp_path / "new").exists():
            found = os.fstat(handle)
            synced.add((found.st_dev, found.st_ino))

    monkeypatch.setattr(os, "fsync", remember)
    write_bundle(tmp_path / "new", **arguments)
    written = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {(p.stat().st_dev, p.stat().st_ino) for p in written} <= synced


def test_labels_with_odd_line_ends_come_back(arguments, tmp_path, manifest):
    labels = [Label(str(i), f"odd{mark}name\r") for i, mark in enumerate("\n\r\x0b\x85\u2028\x00é")]
    arguments["catalogue"] = LabelCatalogue(labels)
    write_bundle(tmp_path / "new", **arguments)
    assert list(open_bundle(tmp_path / "new").catalogue) == labels


@pytest.fixture
def state_file(tmp_path):
    """A JSON file, alone in its folder."""
    write_json_durably(tmp_path / "state.json", {"old": 1})
    return tmp_path / "state.json"


@pytest.mark.parametrize("step", ["os.fsync", "json.dumps", "Path.replace"])
def test_a_failed_replacement_of_a_json_file_keeps_the_old_content(state_file, step, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(f"longtail.models.files.durable.{step}", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_json_durably(state_file, {"new": 2})
    assert read_json(state_file) == {"old": 1}
    assert left_in(state_file.parent) == ["state.json"]
