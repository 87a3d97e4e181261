"""States of a vocabulary: files of labels or concepts, and the labels of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from longtail.ext.editions.changes import VocabularyChanges
from longtail.ext.editions.difference import Replacements, difference
from longtail.models.bundle.bundle import Bundle, open_bundle
from longtail.models.bundle.manifest import MANIFEST_NAME
from longtail.models.bundle.registry import Registry
from longtail.models.files.outputs import check_readable_file
from longtail.models.kinds.names import named_labels
from longtail.models.labels.catalogue import Label
from longtail.models.labels.files import MAX_PROBLEMS, form_of, read_label_file
from longtail.models.names import NAMES


@dataclass(frozen=True, slots=True)
class VocabularyState:
    """All labels of a vocabulary at one time.

    Attributes:
        labels: All labels, including deprecated ones; of a model, including those out of use.
        max_alternative_names: Number of other names that it keeps for each label; None: all.
    """

    labels: Sequence[Label]
    max_alternative_names: int | None = None


def read_state(path: Path, language: str | None, argument: str) -> VocabularyState:
    """Return the labels of a vocabulary, a label file, or a model.

    Args:
        path: A file that `longtail.models.vocabulary.reading` or `longtail.models.labels.files`
            reads; the folder of a bundle; or that of a registry, for its current version.
        language: Language of the names shown, in a vocabulary; None: that in which most concepts
            have one.
        argument: The option that named the path, for messages.
    """
    if path.is_dir():
        is_bundle = (path / MANIFEST_NAME).exists()
        return state_of(open_bundle(path) if is_bundle else Registry(path).open())
    check_readable_file(path, argument)
    form = form_of(path)
    labels = read_label_file(path, form, MAX_PROBLEMS, language, keep_deprecated=True)
    return VocabularyState(labels)


def state_of(bundle: Bundle) -> VocabularyState:
    """Return the labels of a model, with all their names where it keeps them."""
    labels = map(_compared, bundle.catalogue)
    if NAMES in bundle.manifest.scorers:
        named = named_labels(bundle)
        pairs = zip(labels, named, strict=True)
        return VocabularyState(
            [replace(x, alternative_names=every.alternative_names) for x, every in pairs]
        )
    settings = bundle.manifest.training.get("descriptions", {})
    return VocabularyState(list(labels), settings.get("alternative_names", 0))


def _compared(label: Label) -> Label:
    """Return a label of a model as one of a vocabulary; labels out of use are deprecated."""
    if label.is_deprecated != label.is_in_use and not label.parents:
        return label
    return replace(label, is_deprecated=not label.is_in_use, parents=())


def compare_states(
    old: VocabularyState, new: VocabularyState, merges: Replacements | None = None
) -> VocabularyChanges:
    """Return the changes; other names are compared as far as both states keep them."""
    kept = [x for x in (old.max_alternative_names, new.max_alternative_names) if x is not None]
    return difference(old.labels, new.labels, merges, max_alternative_names=min(kept, default=None))
