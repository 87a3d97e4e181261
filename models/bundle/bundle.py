"""A bundle: one folder with everything that a trained model needs to answer, and its manifest.

Written to a temporary folder, fsynced and renamed, so that a reader sees all of it or none;
verified by size, sha256 and array shapes whenever it is opened. safetensors and JSON only:
nothing in a bundle can run code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from longtail.models.bundle.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    RESTORE,
    FileInfo,
    Manifest,
    TensorInfo,
)
from longtail.models.errors import BundleCorruptError, BundleError, BundleNotFoundError, DataError
from longtail.models.files.arrays import mapped_arrays
from longtail.models.files.durable import staged_folder
from longtail.models.labels.catalogue import LabelCatalogue

LABELS_NAME = "labels.jsonl"
ENCODER_FOLDER = "encoder"
_CHUNK_BYTES = 2**22
_MAX_TEXT_BYTES = 2**30
_MAX_HEADER_BYTES = 2**20
"""What a safetensors file says of its arrays, in JSON, of some hundred bytes each."""
MapArrays: TypeAlias = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was found whole when it was opened.

    Attributes:
        folder: Where it is.
        manifest: What it says of itself.
        catalogue: Its labels.
        map_arrays: Whether arrays may stay in their files (see `is_mapped`).
        left_out: Scorers that are not read, as they need the encoder.
    """

    folder: Path
    manifest: Manifest
    catalogue: LabelCatalogue
    map_arrays: MapArrays = "auto"
    left_out: tuple[str, ...] = ()

    @property
    def encoder_folder(self) -> Path:
        """Where the text encoder and its tokenizer lie, if the bundle has them."""
        return self.folder / ENCODER_FOLDER

    def tensors(self, name: str, mapped: Collection[str] = ()) -> dict[str, np.ndarray]:
        """Return the arrays of one safetensors file, by their names.

        Args:
            name: The file's name.
            mapped: Arrays that stay in it, if `is_mapped`: read-only, read from disk when they are
                used, and in memory once for all processes. Who uses them can't rely on an earlier
                check.
        """
        if not is_mapped(self.folder / name, self.map_arrays):
            mapped = ()
        with safe_open(self.folder / name, framework="np") as file:
            names = set(file.keys())
            arrays = {key: file.get_tensor(key) for key in names.difference(mapped)}
        if shared := names.intersection(mapped):
            arrays |= mapped_arrays(self.folder / name, shared)
        return arrays

    def text(self, name: str) -> str:
        """Return the content of one text file."""
        return (self.folder / name).read_text(encoding="utf-8")


def is_mapped(path: Path, map_arrays: MapArrays) -> bool:
    """Whether arrays of a file may stay in it; "auto": unless other users can write to it."""
    if map_arrays != "auto":
        return map_arrays == "always"
    status = path.stat()
    user = getattr(os, "geteuid", lambda: status.st_uid)()  # Windows has no such ids
    is_trusted = status.st_uid in {0, user}
    return not status.st_mode & (0o022 if is_trusted else 0o222)


def open_bundle(folder: Path) -> Bundle:
    """Verify a bundle and open it.

    Every file must be there, with the size and sha256 of the manifest, and no other; every array
    must have the shape and type of the manifest; the catalogue must have as many labels as it says.
    """
    where = _where(folder)
    manifest = read_manifest(folder)
    _verify_names(folder, manifest, where)
    for name, info in manifest.files.items():
        _verify_file(folder / name, info, f"{where}: file {name!r}")
    for name in sorted(manifest.tensors.keys() | set(_tensor_files(manifest.files))):
        expected = manifest.tensors.get(name, {})
        _verify_tensors(folder / name, expected, f"{where}: file {name!r}")
    return Bundle(folder, manifest, _read_catalogue(folder, manifest, where))


def read_manifest(folder: Path) -> Manifest:
    """Return what a bundle says of itself; unlike opening it, this reads no other file."""
    where = _where(folder)
    path = folder / MANIFEST_NAME
    try:
        check_regular_file(path, MAX_MANIFEST_BYTES)
        # Not in text mode, which would read a changed line end as the right one.
        text = path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BundleNotFoundError(
            f"{where}: no {MANIFEST_NAME} in {str(folder)!r}; it is not a bundle"
        ) from error
    except (ValueError, OSError) as error:
        raise BundleCorruptError(
            f"{where}: {MANIFEST_NAME} can't be read ({error}); {RESTORE}"
        ) from error
    return Manifest.from_json(text, where)


def write_bundle(
    folder: Path,
    *,
    manifest: Manifest,
    catalogue: LabelCatalogue,
    tensors: Mapping[str, Mapping[str, np.ndarray]],
    texts: Mapping[str, str],
    encoder_folder: Path | None = None,
    same: Mapping[str, Path] | None = None,
) -> Manifest:
    """Write a new bundle; on return it is on disk, whole, under its name.

    Args:
        folder: Where to; it must not exist. Its parent gets a temporary folder for the while.
        manifest: What is known before writing; files, tensors and digest are filled in here.
        catalogue: All labels.
        tensors: Arrays by file name and name.
        texts: Text files by file name.
        encoder_folder: The trained encoder and its tokenizer, copied into the bundle; None where
            there is none.
        same: Files of another bundle that this one has, too, by file name. Both share the bytes of
            arrays, on disk and in the memory of services, where the file system has hard links.

    Returns:
        The manifest as written.
    """
    if folder.exists():
        raise BundleError(f"bundle {folder.name!r}: {str(folder)!r} is there already")
    with staged_folder(folder, MANIFEST_NAME) as incoming:
        (incoming / LABELS_NAME).write_text(catalogue.to_jsonl(), encoding="utf-8", newline="\n")
        for name, text in texts.items():
            (incoming / name).write_text(text, encoding="utf-8", newline="\n")
        for name, arrays in tensors.items():
            save_file({key: np.ascontiguousarray(a) for key, a in arrays.items()}, incoming / name)
        if encoder_folder is not None:
            shutil.copytree(encoder_folder, incoming / ENCODER_FOLDER)
        for name, source in (same or {}).items():
            _link(source, incoming / name)
        files = {name: file_info(incoming / name) for name in _file_names(incoming)}
        arrays_of = {name: _tensor_infos(incoming / name) for name in _tensor_files(files)}
        content = replace(manifest, files=files, tensors=arrays_of).to_json()
        (incoming / MANIFEST_NAME).write_text(content, encoding="utf-8", newline="\n")
        return Manifest.from_json(content, _where(folder))


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    if source.suffix != ".safetensors":  # small, and people look into them with editors
        shutil.copyfile(source, target)
        return
    try:
        target.hardlink_to(source)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def file_info(path: Path) -> FileInfo:
    """Return size and sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return FileInfo(sha256=digest.hexdigest(), size_bytes=path.stat().st_size)


def _file_names(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = (path.relative_to(folder).as_posix() for path in found)
    return sorted(name for name in names if name != MANIFEST_NAME)


def _tensor_infos(path: Path) -> dict[str, TensorInfo]:
    with safe_open(path, framework="np") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {
            name: TensorInfo(tuple(part.get_shape()), part.get_dtype())
            for name, part in slices.items()
        }


def _where(folder: Path) -> str:
    return f"bundle {folder.name!r}"


def _tensor_files(files: Iterable[str]) -> list[str]:
    """Return the files whose arrays the manifest must list: all but the encoder's."""
    encoder = f"{ENCODER_FOLDER}/"
    names = (name for name in files if not name.startswith(encoder))
    return sorted(name for name in names if name.endswith(".safetensors"))


def _verify_names(folder: Path, manifest: Manifest, where: str) -> None:
    there, expected = set(_file_names(folder)), set(manifest.files)
    if missing := sorted(expected - there):
        raise BundleCorruptError(f"{where}: file {missing[0]!r} is missing; {RESTORE}")
    if odd := sorted(there - expected):
        raise BundleCorruptError(
            f"{where}: file {odd[0]!r} is not in the manifest; remove it, or {RESTORE}"
        )


def _verify_file(path: Path, info: FileInfo, where: str) -> None:
    try:
        is_arrays = path.suffix == ".safetensors"
        size = check_regular_file(path, None if is_arrays else _MAX_TEXT_BYTES)
        if size != info.size_bytes:
            raise BundleCorruptError(
                f"{where} has {size} bytes, manifest says {info.size_bytes}; {RESTORE}"
            )
        found = file_info(path).sha256
        if is_arrays:
            _check_header(path)
    except (ValueError, OSError) as error:
        raise BundleCorruptError(f"{where} can't be read ({error}); {RESTORE}") from error
    if found != info.sha256:
        raise BundleCorruptError(
            f"{where} has sha256 {found[:12]}..., manifest says {info.sha256[:12]}...; {RESTORE}"
        )


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > _MAX_HEADER_BYTES:
        raise ValueError(f"its header has {length} bytes, expected at most {_MAX_HEADER_BYTES}")


def _verify_tensors(path: Path, expected: dict[str, TensorInfo], where: str) -> None:
    try:
        found = _tensor_infos(path)
    except (SafetensorError, OSError) as error:
        raise BundleCorruptError(f"{where} is not safetensors ({error}); {RESTORE}") from error
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise BundleCorruptError(
                f"{where}, array {name!r}, is {_shown(found.get(name))}, "
                f"manifest says {_shown(expected.get(name))}; {RESTORE}"
            )


def _shown(info: TensorInfo | None) -> str:
    return "missing" if info is None else f"{info.dtype} of shape {info.shape}"


def _read_catalogue(folder: Path, manifest: Manifest, where: str) -> LabelCatalogue:
    try:
        text = (folder / LABELS_NAME).read_text(encoding="utf-8")
        if (num_lines := text.count("\n")) != manifest.label_count:  # a label takes much memory
            raise ValueError(f"has {num_lines} labels, manifest says {manifest.label_count}")
        return LabelCatalogue.from_jsonl(text)
    except (OSError, ValueError, DataError) as error:
        raise BundleCorruptError(f"{where}: file {LABELS_NAME!r}: {error}; {RESTORE}") from error


_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def check_regular_file(path: Path, max_bytes: int | None = None) -> int:
    """Return the size of a file in bytes, without opening it: opening a pipe can wait for ever.

    Args:
        path: The file's path.
        max_bytes: The largest size allowed; None: any.
    """
    found = path.lstat()
    for is_kind, what in _KINDS:
        if is_kind(found.st_mode):
            raise ValueError(f"it is not a file but {what}")
    if max_bytes is not None and found.st_size > max_bytes:
        raise ValueError(f"it has {found.st_size} bytes, expected at most {max_bytes}")
    return found.st_size
