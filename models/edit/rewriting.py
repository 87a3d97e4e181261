"""What edits of a bundle share: label texts read by its encoder, and a copy with some changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from longtail.models.bundle.bundle import LABELS_NAME, Bundle, write_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.bundle.trained_on import read_probes
from longtail.models.errors import DataError
from longtail.models.fitted.registry import PARTS
from longtail.models.kinds.scorer import ScorerKind
from longtail.models.kinds.storage import read_model
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.text import pseudo_description
from longtail.models.names import NAMES
from longtail.models.scorers.sparse import SparseModel

logger = logging.getLogger(__name__)

VECTORS = "label_vectors"
"""Of the array of `retrieval`."""


def added_label(label: Label, bundle: Bundle) -> Label:
    """Return a new label as it stands in a catalogue, with its text for the encoder.

    Raises:
        DataError: It can't be added.
    """
    settings = bundle.manifest.training.get("descriptions", {})
    trimmed = replace(
        label,
        training_count=0,
        id=label.id.strip(),
        name=label.name.strip(),
        description=label.description.strip(),
        alternative_names=label.alternative_names[: settings.get("alternative_names", 0)],
        parents=label.parents if settings.get("parents") else (),
    )
    what = f"new label {label.id!r} ({label.name!r})"
    for field, value in (("id", trimmed.id), ("name", trimmed.name)):
        if not value:
            raise DataError(f"{what}: its {field} is blank; give one")
    try:
        " ".join([trimmed.id, pseudo_description(trimmed)]).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{what}: it is no Unicode text ({error}); correct it") from error
    if (row := bundle.catalogue.row_of_id(trimmed.id)) is not None:
        raise DataError(
            f"{what}: the bundle has a label with this id, {bundle.catalogue[row].name!r}; "
            "give another id"
        )
    return replace(trimmed, pseudo_description=pseudo_description(trimmed))


def model_to_extend(bundle: Bundle, kind: ScorerKind, sparse: SparseModel) -> Any:
    """Return the model of one scorer; that of names knows the bundle's own texts."""
    model = read_model(bundle, kind, sparse)
    return replace(model, samples=read_probes(bundle)) if kind.name == NAMES else model


def encoded_label_texts(
    bundle: Bundle, texts: Sequence[str], progress: Callable[[int], object]
) -> Float32[np.ndarray, "label dim"]:
    """Return phi_label of texts, cut as the run's label texts were.

    Args:
        bundle: One with an encoder.
        texts: Pseudo descriptions.
        progress: Called with a number of texts whenever so many have been encoded.
    """
    # These bring PyTorch, which no bundle without an encoder needs.
    from longtail.models.encoders.bert import load_tokenizer
    from longtail.models.encoders.dual_encoder import encode_all
    from longtail.models.encoders.families import num_positions
    from longtail.models.encoders.tokens import tokenize_texts
    from longtail.models.parts.dense_storage import read_dual_encoder

    encoder = read_dual_encoder(bundle)
    tokenizer = load_tokenizer(bundle.encoder_folder)
    settings = bundle.manifest.training.get("descriptions", {})
    max_tokens = settings.get("max_tokens", num_positions(encoder.transformer))
    said = bundle.manifest.encoder
    assert said is not None  # else nothing is encoded
    tokens = tokenize_texts(tokenizer, texts, max_tokens, said.label_prefix)
    pad_id = int(tokenizer.pad_token_id or 0)
    return encode_all(encoder, tokens, "label", pad_id=pad_id, progress=progress)


def write_changed(
    folder: Path,
    bundle: Bundle,
    catalogue: LabelCatalogue,
    changed_tensors: Mapping[str, dict[str, np.ndarray]],
    changed_texts: Mapping[str, str],
) -> Manifest:
    """Write a bundle that is another one with some files changed, all else byte for byte.

    Args:
        folder: As of `longtail.models.bundle.bundle.write_bundle`.
        bundle: The other one.
        catalogue: Of the new one.
        changed_tensors: Arrays by file name and name.
        changed_texts: By file name.
    """
    manifest = replace(
        bundle.manifest,
        label_count=len(catalogue),
        retired_label_count=int(catalogue.is_retired.sum()),
    )
    return rewrite(folder, bundle, manifest, catalogue, changed_tensors, changed_texts)


def rewrite(
    folder: Path,
    bundle: Bundle,
    manifest: Manifest,
    catalogue: LabelCatalogue,
    tensors: Mapping[str, dict[str, np.ndarray]],
    texts: Mapping[str, str],
) -> Manifest:
    """Write a bundle (see `models.bundle.bundle.write_bundle`); what is not given is the same.

    Fitted parts that hold for the scores and labels of the old bundle only do not stay.

    Args:
        folder: The new bundle's; it must not exist.
        bundle: Has what stays the same.
        manifest: Of the new bundle, but for its files; its release is this one.
        catalogue: All labels of the new bundle.
        tensors: Arrays of the files that change or are new, by file name and name.
        texts: Text files that change or are new, by file name.
    """
    before = bundle.manifest
    lost = {part.file: part.if_lost for part in PARTS.values() if part.if_lost}
    for name in sorted(lost.keys() & before.files.keys() - texts.keys()):
        logger.warning(lost[name], bundle.folder.name)
    changed = {*texts, *tensors, *lost, LABELS_NAME}
    return write_bundle(
        folder,
        manifest=replace(manifest, longtail_version=version("longtail")),
        catalogue=catalogue,
        tensors=tensors,
        texts=texts,
        same={name: bundle.folder / name for name in before.files if name not in changed},
    )


def publish_texts(
    registry: Registry, bundle: Bundle, texts: Mapping[str, str], *, activate: bool, action: str
) -> int:
    """Publish a version that ranks as another one does, and return its number.

    So all fitted parts hold, and stay.

    Args:
        registry: Where to.
        bundle: The other one.
        texts: Text files that change or are new, by file name.
        activate: Whether `current` names the new version.
        action: What the log of changes calls this.
    """
    lost = [part.file for part in PARTS.values() if part.if_lost]
    held = {name: bundle.text(name) for name in lost if name in bundle.manifest.files}
    return registry.publish(
        lambda to: rewrite(to, bundle, bundle.manifest, bundle.catalogue, {}, {**held, **texts}),
        activate=activate,
        action=action,
    )
