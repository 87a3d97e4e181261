"""What an edit changes in the answers of a model, measured before the new version is published."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from longtail.models.bundle.bundle import Bundle, open_bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.trained_on import read_probes
from longtail.models.errors import DataError
from longtail.models.kinds.storage import read_parts
from longtail.models.labels.catalogue import Label, LabelCatalogue, row_in_use
from longtail.models.names import NAMES
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor

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
        is_taken = is_edited & (first >= 0) & ~after.catalogue.is_retired[first]
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
