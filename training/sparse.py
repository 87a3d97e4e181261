"""The sparse model's training: tf-idf, and one linear SVM a label (DEPL section 3.2)."""

from __future__ import annotations

import gzip
import importlib.util
import json
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from joblib import Parallel, cpu_count, delayed
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer
from tqdm import tqdm

from models.errors import ConfigError, DataError
from models.sparse import SparseModel, TfidfModel, tokenize, weigh_counts
from training.config import SparseConfig
from training.svm import FittedLabel, SvmProblem, fit_labels, stacked

logger = logging.getLogger(__name__)
_BLOCK_SIZE = 256  # labels fitted between two savings
_CHUNK_SIZE = 32  # labels that one worker fits at a time


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
    # A form that is itself a token must go on being read as its lemma, even one left out.
    used = {form: x for form, x in lemmas.items() if x in kept or form in kept}
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
    """Fit one linear SVM for each label that has a training document (DEPL section 3.2).

    The loss is the (squared) hinge plus the norm of (w, b), as in liblinear; see `training.svm` for
    the documents that it is summed over. Blocks of labels are saved as they are done, so a run that
    was killed goes on after the last.

    Args:
        tfidf: The features.
        features: Training documents.
        truth: Their labels.
        config: Loss, cost, pruning and working sets.
        seed: Of all that is random.
        folder: For the blocks.

    Returns:
        The model; labels without training documents have no row in it. A label that every document
        carries gets zero weights and a bias of 1.
    """
    by_label = csr_array(truth.T)
    covered = np.flatnonzero(np.diff(by_label.indptr)).astype(np.int64)
    is_exact = features.shape[0] <= config.exact_documents
    problem = SvmProblem(
        features=csr_array(features, dtype=np.float64) if is_exact else features,
        by_feature=None if is_exact else csr_array(features.T),
        by_label=by_label,
        config=config,
        seed=seed,
    )
    num_rounds = 1 if is_exact else config.rounds
    fitted: list[FittedLabel] | None = None
    with (
        tqdm(total=num_rounds * len(covered), desc="sparse", unit="label", mininterval=1.0) as bar,
        Parallel(n_jobs=_num_workers(len(covered))) as parallel,
    ):
        for number in range(num_rounds):
            fitted = _fit_round(
                problem, covered, fitted, folder / f"round-{number}", parallel, bar.update
            )
    assert fitted is not None
    weights = stacked([each.weights for each in fitted], len(tfidf.tokens))
    bias = np.array([each.bias for each in fitted], dtype=np.float32)
    return SparseModel(tfidf, weights, bias, covered)


def _fit_round(
    problem: SvmProblem,
    labels: Int64[np.ndarray, "covered"],
    before: list[FittedLabel] | None,
    folder: Path,
    parallel: Parallel,
    progress: Callable[[int], object],
) -> list[FittedLabel]:
    """Fit all labels once, block by block; blocks that lie in the folder are read instead."""
    folder.mkdir(parents=True, exist_ok=True)
    fitted: list[FittedLabel] = []
    for start in range(0, len(labels), _BLOCK_SIZE):
        block = labels[start : start + _BLOCK_SIZE]
        path = folder / f"labels-{block[0]:08d}-{block[-1]:08d}.safetensors"
        if not path.exists():
            chunks = [
                slice(first, min(first + _CHUNK_SIZE, start + len(block)))
                for first in range(start, start + len(block), _CHUNK_SIZE)
            ]
            parts = parallel(
                delayed(fit_labels)(
                    problem, labels[chunk], None if before is None else before[chunk]
                )
                for chunk in chunks
            )
            _save_block(path, [each for part in parts for each in part])
        fitted += _load_block(path, problem.features.shape[1])
        progress(len(block))
    return fitted


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
        table: dict[str, str | list[str]] = json.load(file)
    # Some languages list several lemmas of a form, the likeliest first.
    first = {form: x if isinstance(x, str) else x[0] for form, x in table.items() if x}
    lowered = {form.lower(): lemma.lower() for form, lemma in first.items()}
    return {form: lemma for form, lemma in lowered.items() if form != lemma}


def _num_workers(num_labels: int) -> int:
    """Return how many processes to fit labels in: each needs a block's work to be worth its start.

    Not threads: liblinear's random numbers are one sequence for the whole process, so labels fitted
    at the same time would take them from each other and differ from run to run.
    """
    num_cores: int = cpu_count()
    return max(1, min(num_cores, num_labels // _BLOCK_SIZE))


def _save_block(path: Path, fitted: list[FittedLabel]) -> None:
    arrays = {
        "data": np.concatenate([each.weights.data for each in fitted]),
        "indices": np.concatenate([each.weights.indices for each in fitted]).astype(np.int32),
        "sizes": np.array([each.weights.nnz for each in fitted], dtype=np.int64),
        "bias": np.array([each.bias for each in fitted], dtype=np.float32),
        "hard": np.concatenate([each.hard for each in fitted]),
        "hard_sizes": np.array([len(each.hard) for each in fitted], dtype=np.int64),
    }
    incoming = path.with_suffix(f".incoming-{os.getpid()}")
    save_file(arrays, incoming)
    incoming.replace(path)


def _load_block(path: Path, num_features: int) -> list[FittedLabel]:
    block = load_file(path)
    ends, hard_ends = np.cumsum(block["sizes"])[:-1], np.cumsum(block["hard_sizes"])[:-1]
    rows = zip(
        np.split(block["data"], ends),
        np.split(block["indices"], ends),
        block["bias"].tolist(),
        np.split(block["hard"], hard_ends),
        strict=True,
    )
    return [
        FittedLabel(csr_array((data, indices, [0, len(data)]), shape=(1, num_features)), bias, hard)
        for data, indices, bias, hard in rows
    ]
