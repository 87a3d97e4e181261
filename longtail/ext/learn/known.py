"""Which version knows feedback already: told by manifests alone, before anything is read."""

from __future__ import annotations

from collections.abc import Iterator

from longtail.models.bundle.bundle import read_manifest
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.errors import BundleError
from longtail.training.data.feedback import Feedback


def version_that_knows(
    registry: Registry,
    version: int | str,
    feedback: Feedback,
    corpus: str,
    *,
    activate: bool,
    full: bool,
) -> int | None:
    """Return the version for which there is nothing to learn; None where there is.

    It was learned from the same feedback and corpus: it is the version to learn from, or was
    learned from that one and need not become current. Without feedback, it is the former.

    Args:
        registry: Of the versions.
        version: The version to learn from: a number, or "current".
        feedback: What people said.
        corpus: Fingerprint of the corpus.
        activate: Whether a version that is better is to become current.
        full: Whether all is to be fitted again, even if there is such a version.
    """
    number = registry.resolve(version)
    before = read_manifest(registry.folder_of(number))
    if not feedback.entries:
        return number
    if full:
        return None
    said, current = feedback.sha256, registry.current()
    for other, manifest in ((number, before), *_latest_first(registry)):
        learned = manifest.learned_from
        if learned is None or (learned.feedback_sha256, learned.corpus) != (said, corpus):
            continue
        is_settled = other == current or not (activate and learned.is_better)
        if other == number or (learned.digest == before.digest and is_settled):
            return other
    return None


def _latest_first(registry: Registry) -> Iterator[tuple[int, Manifest]]:
    for version in reversed(registry.versions()):
        try:
            yield version, read_manifest(registry.folder_of(version))
        except BundleError:
            continue  # a broken version knows nothing
