"""The model card: what a stranger should know of a bundle before using it, in Markdown.

Everything in it comes from the bundle, but for what only its publisher can know: the name, the data
and the licence. What was not given is said to be missing. The form is that of Hugging Face: YAML
between two rules, then text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.trained_on import PROBES_NAME
from longtail.models.errors import DataError
from longtail.models.names import DENSE_NEIGHBOURS

_BANDS = (("0", 0, 0), ("1", 1, 1), ("2-9", 2, 9), ("10-99", 10, 99), ("100+", 100, np.inf))
_MEASURES = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10")
_BAND_MEASURES = ("R@10", "macro-F1@5", "PSP@5")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MARKUP = re.compile(r"[\\`*_\[\]<>#|&!~]")
_NO_CODE = re.compile(r"[`|]")
_NOT_TOLD = "the publisher did not say"


@dataclass(frozen=True, slots=True)
class Publication:
    """What only the publisher of a model can know.

    Attributes:
        name: Name of the model.
        data: What it was trained on, and where that comes from.
        licence: An SPDX identifier in lower case, as Hugging Face wants it, such as "cc-by-4.0".
        languages: ISO 639 codes of the texts.
        source: What `longtail pull` is given.
        evaluation: What `longtail evaluate --json` wrote of this model; empty: its dev measures.
    """

    name: str = "A Longtail model"
    data: str = ""
    licence: str = ""
    languages: tuple[str, ...] = ()
    source: str = ""
    evaluation: Mapping[str, Any] = field(default_factory=dict)


def read_evaluation(path: Path, manifest: Manifest) -> dict[str, Any]:
    """Return the figures of a record of `longtail evaluate --json`."""
    try:
        figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["figures"]
        model, _ = figures["model"], figures["scorers"].items()
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DataError(
            f"{path}: is no record of 'longtail evaluate --json' ({error!r}); write one"
        ) from error
    if model != manifest.digest:
        raise DataError(
            f"{path}: measures the model {str(model)[:12]}, expected {manifest.digest[:12]}; "
            "evaluate the version that is sent"
        )
    return figures


_CARD = """\
{front_matter}

# {name}

Finds the labels of a text among {num_labels:,}, rare ones too. Trained with Longtail {release} on \
{num_documents:,} documents.

## Use

With Longtail installed:

```sh
longtail pull {source}
longtail serve            # then http://localhost:8000/
```

```python
import longtail

longtail.load("registry").predict(["a text"], k=5)
```

Scorers: {scorers}; {default_scorer} answers unless another is asked for.

## How good it is

{quality}

## Data and licence

Trained on: {data}.

Licence of the model: {licence}.

## What is in it

{content}

## What it is not for

- Decisions about people without a person who looks at them: labels are suggestions.
- Texts of another kind, language or time than those it was trained on: its probabilities were \
calibrated on {calibrated_on}.
- Labels without training documents as if they were as certain as others: see the table by band.

## Identity

Digest `{digest}`; `longtail pull --digest {digest:.16}` accepts no other. It pins every byte of \
the model; safetensors and JSON only, so nothing in it can run code.
"""


def model_card(
    bundle: Bundle,
    published: Publication,
    keeping: Collection[str],
    fitted: Iterable[str] = (),
) -> str:
    """Return the card of a bundle.

    Args:
        bundle: The bundle.
        published: What it does not say itself.
        keeping: Scorers whose models hold the words of training documents.
        fitted: What its fitted parts say, in sentences.
    """
    manifest = bundle.manifest
    return _CARD.format(
        front_matter=_front_matter(published),
        name=published.name,
        num_labels=manifest.label_count,
        release=_quoted(manifest.longtail_version),
        num_documents=manifest.training_document_count,
        source=published.source or "WHERE_THIS_LIES",
        scorers=", ".join(map(_code, manifest.scorers)),
        default_scorer=_code(manifest.default_scorer),
        quality=_quality(bundle, published.evaluation),
        data=published.data or _NOT_TOLD,
        licence=published.licence or _NOT_TOLD,
        content="\n".join(f"- {fact}" for fact in _content(bundle, keeping, fitted)),
        calibrated_on=manifest.chosen_on if manifest.calibrations else "nothing",
        digest=manifest.digest,
    )


def _front_matter(published: Publication) -> str:
    lines = ["---", "library_name: longtail", "pipeline_tag: text-classification", "tags:"]
    lines += ["- extreme-multi-label-classification", "- rare-labels"]
    if published.licence:
        lines.append(f"license: {json.dumps(published.licence)}")
    if published.languages:
        lines += ["language:", *(f"- {json.dumps(code)}" for code in published.languages)]
    return "\n".join([*lines, "---"])


def _quality(bundle: Bundle, evaluation: Mapping[str, Any]) -> str:
    manifest = bundle.manifest
    if evaluation:
        where = f"the {evaluation['split']} split ({evaluation['num_documents']:,} documents)"
        measured: Any = {
            name: {subset: found.get("values", {}) for subset, found in subsets.items()}
            for name, subsets in evaluation["scorers"].items()
        }
    else:
        where, measured = manifest.chosen_on, manifest.metrics.get("dev")
    scorers = measured if isinstance(measured, dict) else {}
    scorers = {name: x for name, x in scorers.items() if isinstance(x, dict) and x.get("all")}
    counts = bundle.catalogue.training_counts
    bands = [
        (name, f"{np.count_nonzero((low <= counts) & (counts <= high)):,}")
        for name, low, high in _BANDS
    ]
    if not scorers:
        header = ("training documents of a label", "labels")
        return f"Nothing was measured.\n\n{_table(header, bands)}"
    rows = [(_code(name), *_cells(found["all"], _MEASURES)) for name, found in scorers.items()]
    shown = manifest.default_scorer if manifest.default_scorer in scorers else next(iter(scorers))
    by_band = [(*band, *_cells(scorers[shown].get(band[0]), _BAND_MEASURES)) for band in bands]
    biased = "" if evaluation else " The model was chosen on these, so they flatter it a little."
    return (
        f"On {where}, in percent.{biased}\n\n{_table(('scorer', *_MEASURES), rows)}\n\n"
        f"{_code(shown)}, by how many training documents a label has (macro-F1@5 is the mean over "
        "all labels of a row):\n\n"
        + _table(("training documents", "labels", *_BAND_MEASURES), by_band)
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
            f"{'Vectors' if scorer == DENSE_NEIGHBOURS else 'The words'} of every training "
            f"document, its id and its labels (scorer {_code(scorer)}): who has the model can "
            "learn what the documents were about."
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


def _code(name: str) -> str:
    """Return a name of the bundle as code, from which no character of it can lead out."""
    return f"`{_NO_CODE.sub('?', _CONTROLS.sub('?', name))}`"
