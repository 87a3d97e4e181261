"""The model card: what to know of a bundle before it is used, in Markdown.

Everything in it is of the bundle, but for what only its publisher knows. It has the form of Hugging
Face: YAML between two rules, then text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.trained_on import PROBES_NAME
from longtail.models.metrics import shown_in

_BANDS = ("0", "1", "2-9", "10-99", "100+")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MARKUP = re.compile(r"[\\`*_\[\]<>#|&!~]")


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
    manifest, dev = bundle.manifest, bundle.manifest.metrics.get("dev")
    measured: dict[str, Any] = dev if isinstance(dev, dict) else {}
    measured = {x: y for x, y in measured.items() if isinstance(y, dict) and y.get("all")}
    shown: Any = measured.get(manifest.default_scorer) or next(iter(measured.values()), {})
    size = sum(info.size_bytes for info in manifest.files.values())
    content = [f"{size / 1e6:.1f} MB of safetensors and JSON: nothing in it can run code."]
    content += [f"Scorers: {', '.join(manifest.scorers)}; default: {manifest.default_scorer}."]
    if manifest.encoder is not None:
        content += [f"Encoder: {manifest.encoder.name}, {manifest.encoder.max_tokens} tokens."]
    if PROBES_NAME in manifest.files:
        content += ["Some training texts in full, to try the model on when it starts."]
    content += fitted
    content += [
        f"What its training documents were about can be learned from scorer {scorer}: it holds the "
        "words or vectors, the id and the labels of each."
        for scorer in manifest.scorers
        if scorer in keeping
    ]
    scorers = _table("scorer", shown_in("card"), {x: y["all"] for x, y in measured.items()})
    bands = _table("documents", shown_in("card, bands"), {x: shown.get(x) for x in _BANDS})
    facts = "\n".join(f"- {_quoted(fact)}" for fact in content)
    license_line = f"license: {json.dumps(licence)}\n" if licence else ""
    return f"""\
---
library_name: longtail
pipeline_tag: text-classification
tags:
- extreme-multi-label-classification
{license_line}---

# {name}

Finds the labels of a text among {manifest.label_count:,}. Trained with Longtail \
{_quoted(manifest.longtail_version)} on {manifest.training_document_count:,} documents: \
{data or "the publisher did not say which"}.

```sh
longtail pull {source or "PLACE"} --digest {manifest.digest}
longtail serve            # then http://localhost:8000/
```

Percent on {manifest.chosen_on}; then the default scorer's, by training documents of a label:

{scorers}

{bands}

{facts}
"""


def _table(first: str, names: list[str], rows: Mapping[str, Any]) -> str:
    lines = [[first, *names], ["---", *["---:"] * len(names)]]
    for row, values in rows.items():
        found = [values.get(name) if isinstance(values, Mapping) else None for name in names]
        cells = [f"{100 * x:.1f}" if isinstance(x, int | float) else "-" for x in found]
        lines.append([_quoted(row), *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _quoted(text: str) -> str:
    """Return a text of the bundle that is read as it is: no Markdown, HTML or control character."""
    return _MARKUP.sub(r"\\\g<0>", _CONTROLS.sub("?", text))
