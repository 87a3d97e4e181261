"""What `longtail registry show` tells of a version: a page of it, not the whole manifest."""

from __future__ import annotations

from longtail.models.bundle.manifest import Manifest

_SHOWN_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5", "R@10")
_ALL_LABELS = "all"
Rows = list[tuple[str, ...]]


def version_rows(
    manifest: Manifest, number: int, published_at: str | None, is_current: bool
) -> Rows:
    """Return names and values: what the version is and was made of."""
    encoder = manifest.encoder
    size = sum(info.size_bytes for info in manifest.files.values())
    num_retired = manifest.retired_label_count
    retired = f", {num_retired:,} of them retired" if num_retired else ""
    rows = {
        "version": f"{number}{' (current)' if is_current else ''}",
        "published": published_at or "unknown",
        "labels": f"{manifest.label_count:,}{retired}",
        "trained on": f"{manifest.training_document_count:,} documents",
        "encoder": "none"
        if encoder is None
        else f"{encoder.name}, {encoder.dim} dimensions, {encoder.max_tokens} tokens",
        "scorers": ", ".join(manifest.scorers),
        "default scorer": manifest.default_scorer,
        "chosen on": manifest.chosen_on,
        "probabilities": ", ".join(manifest.calibrations) or "not calibrated",
        "size": f"{size / 1e6:.1f} MB in {len(manifest.files)} files",
        "digest": manifest.digest,
    }
    return [(f"{name}:", value) for name, value in rows.items()]


def metric_rows(manifest: Manifest) -> Rows:
    """Return a table of the main metrics on the dev split or what stood for it, in percent.

    Empty without them.
    """
    measured = {
        scorer: values
        for scorer, subsets in manifest.metrics.get("dev", {}).items()
        if isinstance(subsets, dict) and (values := subsets.get(_ALL_LABELS))
    }
    names = [x for x in _SHOWN_METRICS if any(x in values for values in measured.values())]
    if not names:
        return []
    rows: Rows = [(f"{manifest.chosen_on.removeprefix('the ').upper()}, %", *names)]
    for scorer, values in measured.items():
        cells = (f"{100 * values[name]:.1f}" if name in values else "-" for name in names)
        rows.append((scorer, *cells))
    return rows
