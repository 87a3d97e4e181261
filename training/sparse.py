"""The sparse model's training: tf-idf, and one linear SVM a label (DEPL section 3.2)."""

from __future__ import annotations

import gzip
import importlib.util
import json
import logging
import os
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int64
from joblib import Parallel, cpu_count, delayed
from safetensors.numpy import load_file, save_file
from scipy.sparse import csc_array, csr_array, vstack
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.svm import LinearSVC
from tqdm import tqdm

from models.errors import ConfigError, DataError
from models.sparse import SparseModel, TfidfModel, tokenize, weigh_counts
from training.config import SparseConfig

logger = logging.getLogger(__name__)
_BLOCK_SIZE = 256  # labels fitted between two savings
_MAX_ITERATIONS = 100  # of liblinear; the ranking no longer changes long before it converges
_TOLERANCE = 0.1  # liblinear's own default for its dual solver


def fit_tfidf(
    texts: Iterable[str], config: SparseConfig
) -> tuple[TfidfModel, Float32[csr_array, "document feature"]]:
    """Learn vocabulary and idf, and return them with the training documents' tf-idf rows.

    Texts are read once and not kept; memory is that of the count matrix.

    Args:
        texts: Training documents.
        config: Document frequency bounds and lemmas.

    Raises:
        DataError: No token is within the bounds.
        ConfigError: The lemma table is missing.
    """
    lemmas = read_lemmas(config.lemma_language)
    counter = CountVectorizer(
        analyzer=partial(tokenize, lemmas=lemmas),
        min_df=config.min_document_count,
        max_df=config.max_document_share,
        dtype=np.float32,
    )
    try:
        counts = csr_array(counter.fit_transform(texts))
    except ValueError as error:
        raise DataError(
            f"tf-idf: no token occurs in at least {config.min_document_count} and at most "
            f"{config.max_document_share:.0%} of the training documents ({error}); give more "
            "documents, or change sparse.min_document_count or sparse.max_document_share"
        ) from error
    tokens = [str(token) for token in counter.get_feature_names_out()]
    num_documents = counts.shape[0]
    frequency = np.bincount(counts.indices, minlength=len(tokens))
    idf = (np.log((1 + num_documents) / (1 + frequency)) + 1).astype(np.float32)
    kept = set(tokens)
    used = {form: lemma for form, lemma in lemmas.items() if lemma in kept}
    return TfidfModel(tokens, idf, used), weigh_counts(counts, idf)


def fit_sparse_model(
    tfidf: TfidfModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
    config: SparseConfig,
    *,
    seed: int,
    folder: Path,
) -> SparseModel:
    """Fit one linear SVM for each label that has a training document, all others being negative.

    The loss is the (squared) hinge of DEPL section 3.2 plus the norm of (w, b), as in liblinear.
    Blocks of labels are saved as they are done, so a run that was killed goes on after the last.

    Args:
        tfidf: The features.
        features: Training documents.
        truth: Their labels.
        config: Loss, cost and pruning.
        seed: Of liblinear's shuffling.
        folder: For the blocks.

    Returns:
        The model; labels without training documents have no row in it. A label that every document
        carries gets zero weights and a bias of 1.
    """
    by_label = csc_array(truth)
    doubled = csr_array(
        features, dtype=np.float64
    )  # what liblinear takes, made once for all labels
    covered = np.flatnonzero(np.diff(by_label.indptr)).astype(np.int64)
    folder.mkdir(parents=True, exist_ok=True)
    blocks = []
    with (
        tqdm(total=len(covered), desc="sparse", unit="label", mininterval=1.0) as bar,
        Parallel(n_jobs=_num_workers(len(covered))) as parallel,
    ):
        for start in range(0, len(covered), _BLOCK_SIZE):
            labels = covered[start : start + _BLOCK_SIZE]
            path = folder / f"labels-{labels[0]:08d}-{labels[-1]:08d}.safetensors"
            if not path.exists():
                fitted = parallel(
                    delayed(_fit_label)(doubled, _documents_of(by_label, label), config, seed)
                    for label in labels.tolist()
                )
                _save_block(path, [row for row, _ in fitted], [bias for _, bias in fitted])
            blocks.append(load_file(path))
            bar.update(len(labels))
    weights = vstack([_weights_of(block, len(tfidf.tokens)) for block in blocks], format="csr")
    bias = np.concatenate([block["bias"] for block in blocks])
    return SparseModel(tfidf, csr_array(weights), bias, covered)


def read_lemmas(language: str) -> dict[str, str]:
    """Return spaCy's lookup lemmas of a language, by lower-case surface form; none for "".

    The tables are lists of forms and know no part of speech ("leaves" -> "leave").

    Raises:
        ConfigError: The package with the tables is missing, or has none for this language.
    """
    if not language:
        return {}
    spec = importlib.util.find_spec("spacy_lookups_data")
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"sparse.lemma_language {language!r}: the package spacy-lookups-data is missing; "
            "install the extra 'lemmas', or leave it empty"
        )
    path = Path(spec.origin).parent / "data" / f"{language}_lemma_lookup.json.gz"
    if not path.exists():
        raise ConfigError(
            f"sparse.lemma_language {language!r}: spacy-lookups-data has no such lemma table; "
            "leave it empty, or choose another language"
        )
    with gzip.open(path, "rt", encoding="utf-8") as file:
        table: dict[str, str] = json.load(file)
    lowered = {form.lower(): lemma.lower() for form, lemma in table.items()}
    return {form: lemma for form, lemma in lowered.items() if form != lemma}


def _num_workers(num_labels: int) -> int:
    """Return how many processes to fit labels in: each needs a block's work to be worth its start.

    Not threads: liblinear's random numbers are one sequence for the whole process, so labels fitted
    at the same time would take them from each other and differ from run to run.
    """
    num_cores: int = cpu_count()
    return max(1, min(num_cores, num_labels // _BLOCK_SIZE))


def _documents_of(by_label: csc_array, label: int) -> Int64[np.ndarray, "positive"]:
    rows = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
    return np.asarray(rows, dtype=np.int64)


def _fit_label(
    features: csr_array, positives: Int64[np.ndarray, "positive"], config: SparseConfig, seed: int
) -> tuple[Float32[csr_array, "one feature"], float]:
    """Return one label's pruned weights and its bias."""
    num_documents, num_features = features.shape
    if len(positives) == num_documents:
        return csr_array((1, num_features), dtype=np.float32), 1.0
    target = np.zeros(num_documents)
    target[positives] = 1.0
    svm = LinearSVC(
        loss=config.loss,
        C=config.cost,
        dual=True,
        tol=_TOLERANCE,
        max_iter=_MAX_ITERATIONS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # see _MAX_ITERATIONS
        svm.fit(features, target)
    return _pruned(svm.coef_[0], config.prune_below), float(svm.intercept_[0])


def _pruned(
    weights: Float64[np.ndarray, "feature"], prune_below: float
) -> Float32[csr_array, "one feature"]:
    kept = np.flatnonzero(np.abs(weights) >= max(prune_below, np.finfo(np.float32).tiny))
    values = weights[kept].astype(np.float32)
    return csr_array((values, kept, [0, len(kept)]), shape=(1, len(weights)))


def _save_block(path: Path, rows: list[csr_array], bias: list[float]) -> None:
    block = vstack(rows, format="csr")
    incoming = path.with_suffix(f".incoming-{os.getpid()}")
    arrays = {
        "data": block.data,
        "indices": block.indices.astype(np.int32),
        "indptr": block.indptr.astype(np.int64),
        "bias": np.array(bias, dtype=np.float32),
    }
    save_file(arrays, incoming)
    incoming.replace(path)


def _weights_of(block: dict[str, np.ndarray], num_features: int) -> csr_array:
    parts = (block["data"], block["indices"], block["indptr"])
    return csr_array(parts, shape=(len(block["bias"]), num_features))
