"""Probabilities of texts shorter than documents, with and without what was fitted for them.

    python tests/bench/short_texts.py REGISTRY CORPUS [--documents 500] [--json FILE]

Documents of the test split are cut: every second one to its first words, the others to words from
any place. A label is right if the whole document has it. ECE is of the 20 best labels of each
text, in percent.
"""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

import numpy as np
from machine import begin
from recording import Table, add_json_option, keep

from longtail.models.bundle.registry import Registry
from longtail.models.fitted.familiar_range import FAMILIAR_RANGE
from longtail.models.kinds.storage import read_parts
from longtail.models.predict.predictor import Predictor
from longtail.training.data.dataset import open_dataset
from longtail.training.fitted.familiar_range import cut

LENGTHS = (2, 4, 16, 64)
K = 20


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("registry", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--documents", type=int, default=500)
    add_json_option(parser)
    asked = begin(parser)
    bundle = Registry(asked.registry).open("current")
    parts = read_parts(bundle)
    models = {
        kind: Predictor(
            FAMILIAR_RANGE.added_to(parts, familiar),
            default_scorer=bundle.manifest.default_scorer,
            device="cpu",
            num_threads=1,
        )
        for kind, familiar in (("as documents", None), ("as short texts", FAMILIAR_RANGE.of(parts)))
    }
    split = open_dataset(asked.corpus).split("test")
    documents = list(islice(split, asked.documents))
    table = Table({
        "words": "", "probabilities": "", "p >= 0.5 a text": ".2f", "of them right, %": ".1f",
        "p >= 0.95 a text": ".2f", "of these right, %": ".1f", "ECE": ".2f",
    })  # fmt: skip
    for length in LENGTHS:
        texts = cut([document.text for document in documents], length)
        for kind, model in models.items():
            table.add(length, kind, *measured(model, texts, [set(x.labels) for x in documents]))
    keep(asked.json, {"short texts": table})


def measured(model: Predictor, texts: list[str], truth: list[set[int]]) -> list[float]:
    """Return the numbers of a row."""
    answers = model.predict(texts, k=K)
    labels = [(each, label) for each, found in enumerate(answers) for label in found.labels]
    p = np.array([label.probability for _, label in labels])
    is_right = np.array([label.index in truth[text] for text, label in labels])
    found = []
    for least in (0.5, 0.95):
        is_above = p >= least
        share = 100 * is_right[is_above].mean() if is_above.any() else np.nan
        found += [is_above.sum() / len(texts), share]
    bins = np.minimum((10 * p).astype(int), 9)
    gaps = [abs((p - is_right)[bins == number].sum()) for number in range(10)]
    return [*found, 100 * sum(gaps) / len(p)]


if __name__ == "__main__":
    main()
