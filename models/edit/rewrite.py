"""Writing a bundle that is another one but for some of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from longtail.models.bundle.bundle import ENCODER_FOLDER, LABELS_NAME, Bundle, write_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.labels.catalogue import LabelCatalogue


def rewrite(
    folder: Path,
    bundle: Bundle,
    manifest: Manifest,
    catalogue: LabelCatalogue,
    tensors: Mapping[str, dict[str, np.ndarray]],
    texts: Mapping[str, str],
) -> Manifest:
    """Write a bundle (see `models.bundle.bundle.write_bundle`); what is not given is copied.

    Args:
        folder: The new bundle's; it must not exist.
        bundle: What is copied.
        manifest: Of the new bundle, but for its files; its release is this one.
        catalogue: All labels of the new bundle.
        tensors: Arrays of the files that change or are new, by file name and name.
        texts: Text files that change or are new, by file name.
    """
    before = bundle.manifest
    same_texts = (
        name
        for name in before.files
        if name not in before.tensors
        and name != LABELS_NAME
        and not name.startswith(f"{ENCODER_FOLDER}/")
        and name not in texts
    )
    same_tensors = (name for name in before.tensors if name not in tensors)
    return write_bundle(
        folder,
        manifest=replace(manifest, longtail_version=version("longtail")),
        catalogue=catalogue,
        tensors={name: bundle.tensors(name) for name in same_tensors} | dict(tensors),
        texts={name: bundle.text(name) for name in same_texts} | dict(texts),
        encoder_folder=None if before.encoder is None else bundle.encoder_folder,
    )
