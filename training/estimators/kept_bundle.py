"""The bundle of an estimator: in a folder that goes with it, and as bytes where it is copied.

A pickled or copied estimator carries the files of its bundle, safetensors and JSON, which are
verified when they are opened again.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from longtail.models.bundle.bundle import Bundle, open_bundle
from longtail.models.bundle.manifest import MANIFEST_NAME, Manifest
from longtail.models.files.durable import sync_tree

_FOLDER_NAME = "bundle"


class OwnFolder:
    """A temporary folder that is removed when nothing refers to this object any more."""

    def __init__(self) -> None:
        """Make the folder."""
        self.path = Path(tempfile.mkdtemp(prefix="longtail-"))
        self._removal = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder now."""
        self._removal()


def files_of(bundle: Bundle) -> dict[str, bytes]:
    """Return all files of a bundle, by their paths in it."""
    names = [MANIFEST_NAME, *bundle.manifest.files]
    return {name: (bundle.folder / name).read_bytes() for name in names}


def restored(files: Mapping[str, bytes], folder: Path) -> Bundle:
    """Write the files of a bundle into a folder that has none, verify and open it.

    Raises:
        BundleCorruptError: They are not as they were written.
    """
    root = folder / _FOLDER_NAME
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return open_bundle(root)


def copied(bundle: Bundle, folder: Path) -> Manifest:
    """Copy a bundle to a new folder, durably, and return its manifest."""
    shutil.copytree(bundle.folder, folder)
    sync_tree(folder)
    return bundle.manifest
