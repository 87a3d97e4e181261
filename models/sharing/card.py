"""The model card: what to know of a bundle before it is used, in Markdown.

Everything in it is of the bundle, but for what only its publisher knows. It has the form of Hugging
Face: YAML between two rules, then text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.trained_on import PROBES_NAME
from longtail.models.metrics import shown_in

_BANDS = (("0", 0, 0), ("1", 1, 1), ("2-9", 2, 9), ("10-99", 10, 99), ("100+", 100, np.inf))
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MARKUP = re.compile(r"[\\`*_\[\]<>#|&!~]")
_CARD = """\
---
library_name: longtail
pipeline_tag: text-classification
tags:
- extreme-multi-label-classification
{licence}---

# {name}

Finds the labels of a text among {num_labels:,}, rare ones too. Trained with Longtail {release} on \
{num_documents:,} documents: {data}.

```sh
longtail pull {source} --digest {digest:.16}
longtail serve            # then http://localhost:8000/
```

Scorers: {scorers}; {default} answers unless another is asked for. The digest is `{digest}`: it pins
every byte. There are safetensors and JSON only, so nothing in the model can run code.

## How good it is

{quality}

## What is in it

{content}

## What it is not for

- Decisions about people without a person who looks at them: labels are suggestions.
- Texts of another kind, language or time than those it was trained on: its probabilities were \
calibrated on {calibrated_on}.
- Labels without training documents as if they were as certain as others: see the table by band.
"""


def model_card(
    bundle: Bundle,
    keeping: Collection[str],
    fitted: Iterable[str] = (),
    *,
    name: str = "A Longtail model",
    data: str = "",
    licence: str = "",
    source: str = "",
) -> str:
    """Return the card of a bundle.

    Args:
        bundle: The bundle.
        keeping: Scorers whose models hold the words of training documents.
        fitted: Sentences about its fitted parts.
        name: The model's name.
        data: What it was trained on.
        licence: An SPDX identifier in lower case, such as "cc-by-4.0".
        source: What `longtail pull` is given.
    """
    manifest = bundle.manifest
    return _CARD.format(
        licence=f"license: {json.dumps(licence)}\n" if licence else "",
        name=name,
        num_labels=manifest.label_count,
        release=_quoted(manifest.longtail_version),
        num_documents=manifest.training_document_count,
        data=data or "the publisher did not say which",
        source=source or "PLACE",
        scorers=", ".join(map(_quoted, manifest.scorers)),
        default=_quoted(manifest.default_scorer),
        quality=_quality(bundle),
        content="\n".join(f"- {fact}" for fact in _content(bundle, keeping, fitted)),
        calibrated_on=manifest.chosen_on if manifest.calibrations else "nothing",
        digest=manifest.digest,
    )


def _quality(bundle: Bundle) -> str:
    manifest, counts = bundle.manifest, bundle.catalogue.training_counts
    measures, by_band = shown_in("card"), shown_in("card, bands")
    dev = manifest.metrics.get("dev")
    scorers = {} if not isinstance(dev, dict) else dev
    scorers = {name: x for name, x in scorers.items() if isinstance(x, dict) and x.get("all")}
    shown: Any = scorers.get(manifest.default_scorer) or next(iter(scorers.values()), {})
    bands = [
        (name, f"{np.count_nonzero((low <= counts) & (counts <= high)):,}",
         *_cells(shown.get(name), by_band))
        for name, low, high in _BANDS
    ]  # fmt: skip
    rows = [(_quoted(name), *_cells(found["all"], measures)) for name, found in scorers.items()]
    return (
        f"On {manifest.chosen_on}, in percent, which the model was chosen on; then the default "
        "scorer by how many training documents a label has:\n\n"
        + _table(("scorer", *measures), rows)
        + "\n\n"
        + _table(("training documents", "labels", *by_band), bands)
    )


def _content(bundle: Bundle, keeping: Collection[str], fitted: Iterable[str]) -> Iterator[str]:
    manifest = bundle.manifest
    size = sum(info.size_bytes for info in manifest.files.values())
    yield f"{size / 1e6:.1f} MB in {len(manifest.files)} files."
    if (encoder := manifest.encoder) is None:
        yield "No encoder: it reads words and names, and needs no GPU."
    else:
        yield f"The encoder {_quoted(encoder.name)}; it reads {encoder.max_tokens} tokens."
    if PROBES_NAME in manifest.files:
        num_texts = sum(1 for line in bundle.text(PROBES_NAME).splitlines() if line.strip())
        yield f"{num_texts} training texts in full, to try the model on when it starts."
    yield from map(_quoted, fitted)
    for scorer in (name for name in manifest.scorers if name in keeping):
        yield (
            f"The words, or vectors, of every training document, its id and its labels (scorer "
            f"{_quoted(scorer)}): who has the model can learn what the documents were about."
        )


def _cells(values: object, names: Sequence[str]) -> list[str]:
    found = (values.get(name) if isinstance(values, Mapping) else None for name in names)
    return [f"{100 * x:.1f}" if isinstance(x, int | float) else "-" for x in found]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _quoted(text: str) -> str:
    """Return a text of the bundle that is read as it is: no Markdown, HTML or control character."""
    return _MARKUP.sub(r"\\\g<0>", _CONTROLS.sub("?", text))
