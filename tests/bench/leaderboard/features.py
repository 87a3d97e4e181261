"""The features that peers learn from: Longtail's own tf-idf, so that only the learners differ.

Two kinds, of which each peer may choose on dev: words, as `longtail train` reads them by default,
and words with phrases of two, as `training/configs/phrases.yaml` does.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from row import with_dev
from scipy.sparse import csr_matrix, save_npz

from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import Dataset
from longtail.training.sparse.tfidf import fit_tfidf

FEATURES = {
    "words": SparseConfig(),
    "phrases": SparseConfig(max_ngram=2, min_document_count=3, max_document_share=1.0),
}


def write_features(dataset: Dataset, kind: str, split: str, folder: Path) -> dict[str, float]:
    """Write the features and labels of the training documents, and the features of a split.

    For dev they are those of `with_dev`; for test all training documents are learned from, those
    too that were held out for dev where the corpus has none. What is there already is kept.

    Args:
        dataset: The corpus.
        kind: The features' kind.
        split: The documents to rank: "dev" or "test".
        folder: For `X.npz`, `Y.npz` and `judged.npz`.

    Returns:
        CPU seconds to learn the features, and milliseconds a text to make them.
    """
    costs = folder / "costs.json"
    if not costs.exists():
        folder.mkdir(parents=True, exist_ok=True)
        learned = with_dev(dataset) if split == "dev" else dataset
        training, judged = learned.split("train"), learned.split(split)
        started = time.process_time()
        tfidf, features = fit_tfidf(training.texts(), FEATURES[kind])
        seconds = time.process_time() - started
        texts = list(judged.texts())
        started = time.process_time()
        ranked = tfidf.transform(texts)
        milliseconds = 1000 * (time.process_time() - started) / len(texts)
        for name, matrix in (("X", features), ("Y", training.scan().labels), ("judged", ranked)):
            save_npz(folder / f"{name}.npz", csr_matrix(matrix))
        costs.write_text(json.dumps({"seconds": seconds, "milliseconds": milliseconds}))
    found: dict[str, float] = json.loads(costs.read_text())
    return found
