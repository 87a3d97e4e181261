"""An inspection of a corpus as a person reads it: tables, bars, examples, and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from longtail.models.files.durable import make_private_folder, write_lines_durably
from longtail.training.evaluation.plots import can_draw, new_figure, write_figure
from longtail.training.evaluation.record import NOT_MEASURED, markdown_table
from longtail.training.reports.inspection import Inspection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULT_NAMES = ("inspection.md", "inspection.json", "tail.png")
_WIDTH = 40  # characters of the longest bar


def write_inspection(found: Inspection, folder: Path) -> list[Path]:
    """Write text, JSON and, with matplotlib, a picture; return their paths in this order.

    The first two quote documents and are private.
    """
    make_private_folder(folder)
    paths = [folder / name for name in RESULT_NAMES]
    contents = (text_of(found), json.dumps(found.to_json(), indent=1, ensure_ascii=False))
    for path, content in zip(paths, contents, strict=False):
        write_lines_durably(path, [content], is_private=True)
    if not can_draw():
        return paths[:2]
    write_figure(draw_tail(found.training_counts), paths[2])
    return paths


def text_of(found: Inspection) -> str:
    """Return all of an inspection in Markdown that a terminal shows as well."""
    ranks = bars_of_ranks(found.training_counts)
    parts = [
        f"# What was understood\n\n{_bullets((f'format: {found.form}', *found.recognised))}",
        f"## Documents\n\n{_split_table(found)}\n\n{_languages(found)}",
        f"## Labels\n\n{_label_line(found)}\n\n```\n{bars_of_bands(found)}\n```",
        f"Training documents of the label at each rank:\n\n```\n{ranks}\n```",
        f"## Examples\n\n{_examples(found) or 'None are shown.'}",
        f"## Suspicious\n\n{_bullets(found.oddities) or 'Nothing was found.'}",
        _costs(found),
    ]
    return "\n\n".join(part for part in parts if part)


def bars_of_bands(found: Inspection) -> str:
    """Return a bar for the labels of each band of training documents."""
    names = [f"{name} documents" for name in found.bands]
    return _bars(names, list(found.bands.values()), list(found.bands.values()))


def bars_of_ranks(training_counts: Int64[np.ndarray, label]) -> str:
    """Return bars of how many training documents labels have, at ranks that grow by about 2 or 3.

    Args:
        training_counts: Training documents of each label, falling. The bars grow by their
            logarithm.
    """
    steps = (scale * 10**power for power in range(9) for scale in (1, 3))
    ranks = [rank for rank in steps if rank < len(training_counts)] + [len(training_counts)]
    counts = [int(training_counts[rank - 1]) for rank in ranks]
    return _bars([f"{rank:,}" for rank in ranks], counts, np.log1p(counts).tolist())


def draw_tail(training_counts: Int64[np.ndarray, label]) -> Figure:
    """Draw the training documents of each label over its rank, both on logarithmic axes.

    Args:
        training_counts: Training documents of each label, falling; labels without any are named in
            the title.
    """
    figure = new_figure(7.0, 4.5)
    axes = figure.subplots()
    trained = training_counts[training_counts > 0]
    axes.plot(np.arange(len(trained)) + 1, trained, marker=".", markersize=3, linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.axhspan(0.8, 9.5, alpha=0.1, label="1 to 9 training documents")
    num_untrained = len(training_counts) - len(trained)
    axes.set_title(f"{len(training_counts):,} labels, {num_untrained:,} without training documents")
    axes.set_xlabel("rank of the label, from common to rare")
    axes.set_ylabel("training documents")
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


def _bars(names: list[str], counts: list[int], lengths: list[float] | list[int]) -> str:
    longest = max([*lengths, 1e-9])
    width, digits = max(map(len, names)), max(len(f"{count:,}") for count in counts)
    return "\n".join(
        f"{name:>{width}}  {count:>{digits},}  {'#' * round(_WIDTH * length / longest)}".rstrip()
        for name, count, length in zip(names, counts, lengths, strict=True)
    )


def _split_table(found: Inspection) -> str:
    quantiles = next((list(x.lengths) for x in found.splits.values() if x.lengths), [])
    header = ["split", "documents", "labels a document", *(f"characters, {x}" for x in quantiles)]
    rows = [
        [
            name,
            f"{split.num_documents:,}",
            f"{split.labels_a_document:.2f}",
            *(f"{split.lengths[x]:,}" if split.lengths else NOT_MEASURED for x in quantiles),
        ]
        for name, split in found.splits.items()
    ]
    return markdown_table(header, rows)


def _languages(found: Inspection) -> str:
    shares = [f"languages of {name}: {split.languages}" for name, split in found.splits.items()]
    return _bullets((*shares, f"languages of the labels' names: {found.name_languages}"))


def _label_line(found: Inspection) -> str:
    source = f"of {found.label_file}" if found.label_file else "that the documents carry"
    return f"{found.num_labels:,} labels {source}; by training documents:"


def _examples(found: Inspection) -> str:
    return "\n".join(
        f"- {each.id}: {' '.join(each.text.split())}\n  labels: {'; '.join(each.labels) or 'none'}"
        for each in found.examples
    )


def _bullets(lines: tuple[str, ...]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _costs(found: Inspection) -> str:
    if not found.costs:
        return ""
    rows = [
        [
            cost.what,
            cost.time,
            " to ".join(f"{x:.1f}" for x in cost.gib),
        ]
        for cost in found.costs
    ]
    table = markdown_table(["longtail train", "time", "memory, GiB"], rows)
    return (
        f"## Training will take about\n\n{table}\n\nEstimated from documents, words and labels by "
        "what was measured on a few corpora (docs/results); the default configuration, an idle "
        "machine."
    )
