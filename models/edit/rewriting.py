"""Edits of a bundle: label texts read by its encoder, a copy with changes, and their effect."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from longtail.models.bundle.bundle import LABELS_NAME, Bundle, open_bundle, write_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.bundle.trained_on import read_probes
from longtail.models.errors import DataError
from longtail.models.fitted.registry import PARTS
from longtail.models.kinds.scorer import ScorerKind
from longtail.models.kinds.storage import read_model, read_parts
from longtail.models.labels.catalogue import Label, LabelCatalogue, row_in_use
from longtail.models.labels.text import pseudo_description
from longtail.models.names import NAMES
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.predict.trial import check_answers
from longtail.models.scorers.sparse import SparseModel

logger = logging.getLogger(__name__)

VECTORS = "label_vectors"
"""Name of the array of `retrieval`."""


def added_label(label: Label, bundle: Bundle) -> Label:
    """Return a new label as it is in a catalogue, with its text for the encoder."""
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
        progress: Called with the number of texts of each batch that was encoded.
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
        catalogue: The new bundle's catalogue.
        changed_tensors: Arrays by file name and name.
        changed_texts: By file name.
    """
    manifest = bundle.manifest.of_labels(len(catalogue), int(catalogue.in_use.sum()))
    return rewrite(folder, bundle, manifest, catalogue, changed_tensors, changed_texts)


def rewrite(
    folder: Path,
    bundle: Bundle,
    manifest: Manifest,
    catalogue: LabelCatalogue,
    tensors: Mapping[str, dict[str, np.ndarray]],
    texts: Mapping[str, str],
) -> Manifest:
    """Write a bundle (see `models.bundle.bundle.write_bundle`); other parts stay the same.

    Fitted parts that hold for the scores and labels of the old bundle only do not stay.

    Args:
        folder: The new bundle's; it must not exist.
        bundle: Has what stays the same.
        manifest: The new bundle's manifest, without its files; its release is this one.
        catalogue: All labels of the new bundle.
        tensors: Arrays of the files that change or are new, by file name and name.
        texts: Text files that change or are new, by file name.
    """
    before = bundle.manifest
    warn_of_lost(bundle, texts)
    changed = {*texts, *tensors, *_lost(), LABELS_NAME}
    return write_bundle(
        folder,
        manifest=replace(manifest, longtail_version=version("longtail")),
        catalogue=catalogue,
        tensors=tensors,
        texts=texts,
        same={name: bundle.folder / name for name in before.files if name not in changed},
    )


def _lost() -> dict[str, str]:
    """Return what to say where a version lacks a part of the one it is made from, by its file."""
    return {part.file: part.if_lost for part in PARTS.values() if part.if_lost}


def warn_of_lost(bundle: Bundle, kept: Collection[str] = ()) -> None:
    """Say which fitted parts hold for a bundle only, so that a version made from it lacks them.

    Args:
        bundle: The bundle.
        kept: Names of files that the version has.
    """
    lost = _lost()
    for name in sorted(lost.keys() & bundle.manifest.files.keys() - set(kept)):
        logger.warning(lost[name], bundle.folder.name)


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
    held = {name: bundle.text(name) for name in _lost() if name in bundle.manifest.files}
    return registry.publish(
        lambda to: rewrite(to, bundle, bundle.manifest, bundle.catalogue, {}, {**held, **texts}),
        activate=activate,
        action=action,
        check=check_answers,
    )


MOST_TAKEN = 0.01
"""Share of first places that added and changed labels may take, without being forced."""
_LEAST_TAKEN, _FEW, _TOGETHER = 2, 100, 32


@dataclass(frozen=True, slots=True)
class MeasuredOn:
    """Texts, none of them blank, and the ids of what each carries, where that is known."""

    texts: Sequence[str]
    labels: Sequence[Sequence[str]] = ()


def measured(
    write: Callable[[Path], Manifest],
    before: Bundle,
    on: MeasuredOn | None,
    tell: Callable[[str], object],
    *,
    force: bool,
) -> Callable[[Path], Manifest]:
    """Return what writes an edited bundle, for `Registry.publish`, and tells what that changes.

    It raises a `DataError` where added and changed labels take too many first places: of labels in
    use, in texts that are not known to carry the new ones. And where it is known which labels are
    right, if P@1 falls by more than its standard error: new names change how others are found.

    Args:
        write: Writes the edited bundle.
        before: The bundle before the edit.
        on: What is ranked, by the default scorer; None: the warm-up texts.
        tell: Gets first places that are others now, and P@1 where it is known, in sentences.
        force: Whether it is written whatever it takes.
    """
    on = on or MeasuredOn(read_probes(before))
    known, first = _labels_and_first(before, on.texts)

    def write_measured(folder: Path) -> Manifest:
        manifest = write(folder)
        after = open_bundle(folder)
        labels, now = _labels_and_first(after, on.texts)
        is_new = np.array([label != old for label, old in zip_longest(labels, known)])
        is_changed = now != first
        is_edited = is_changed & (now >= 0) & is_new[now]
        is_taken = is_edited & (first >= 0) & after.catalogue.in_use[first]
        fall = error = 0.0
        said = (
            f"Of {len(now):,} texts, {is_changed.sum():,} have another first label, "
            f"{is_edited.sum():,} an added or changed one."
        )
        if on.labels:
            was_right = _is_right(before.catalogue, first, on.labels)
            is_right = _is_right(after.catalogue, now, on.labels)
            said += f" P@1 {was_right.mean():.1%} before, {is_right.mean():.1%} after."
            is_taken &= ~is_right
            fall, error = was_right.mean() - is_right.mean(), was_right.std() / len(now) ** 0.5
        if len(now) < _FEW:
            said += " So few show large effects only; --data DATA measures on a corpus."
        num_taken = int(is_taken.sum())
        if num_taken >= _LEAST_TAKEN and num_taken > MOST_TAKEN * len(now) and not force:
            shutil.rmtree(folder)
            names = Counter(after.catalogue[row].name for row in now[is_taken].tolist())
            raise DataError(
                f"{said} Got {num_taken:,} first places taken from other labels ("
                f"{', '.join(f'{name!r}: {count}' for name, count in names.most_common(3))}), "
                f"expected at most {MOST_TAKEN:.0%}; nothing is published: give these labels names "
                "that tell more, or --force"
            )
        if fall > error and not force:
            shutil.rmtree(folder)
            raise DataError(
                f"{said} Got P@1 lower by more than its standard error ({error:.1%}); nothing is "
                "published: give the new labels names that tell more, or --force"
            )
        tell(said)
        return manifest

    return write_measured


def _labels_and_first(
    bundle: Bundle, texts: Sequence[str]
) -> tuple[list[tuple[Label, ...]], Int64[np.ndarray, text]]:
    """Return each label, as the catalogue and `names` have it, and the row of each text's best."""
    parts = read_parts(bundle)
    predictor = Predictor(parts, default_scorer=bundle.manifest.default_scorer, device="cpu")
    rows = np.zeros(len(texts), dtype=np.int64)
    for at in range(0, len(texts), _TOGETHER):
        batch = predictor.read(texts[at : at + _TOGETHER])
        rows[at : at + _TOGETHER] = predictor.rank(batch, RankingOptions(1)).labels[:, 0]
    named = [parts.models[NAMES].catalogue] if NAMES in parts.models else []
    return list(zip(parts.catalogue, *named, strict=True)), rows


def _is_right(
    catalogue: LabelCatalogue, rows: Int64[np.ndarray, text], carried: Sequence[Sequence[str]]
) -> Bool[np.ndarray, text]:
    pairs = zip(rows.tolist(), carried, strict=True)
    return np.array([row in {row_in_use(catalogue, x) for x in ids} for row, ids in pairs])
