"""The sparse model's training: tf-idf, and one linear SVM a label (DEPL section 3.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from joblib import cpu_count
from safetensors.numpy import load_file
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.models.matrices import Elements, csr_of_parts
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.configuration.sections import SparseConfig
from longtail.training.runtime.kept import save_arrays
from longtail.training.runtime.run_log import progress_bar
from longtail.training.sparse.svm import FittedLabels, SvmProblem, joined

logger = logging.getLogger(__name__)
_BLOCK_SIZE = 1024  # labels fitted between two savings
_CHUNK_SIZE = 32  # labels that one thread fits at a time
_NO_BIAS = np.empty(0, dtype=np.float32)
LabelEngine = Callable[..., Iterator[tuple[int, FittedLabels]]]
"""Fits blocks of labels and yields (block number, fitted labels); see `fit_on_threads`."""


class NoTokenError(DataError):
    """No token of the training documents is within the bounds."""


def fit_on_threads(
    features: Float32[csr_array, "document feature"],
    by_label: Float32[csr_array, "label document"],
    config: SparseConfig,
    seed: int,
    blocks: Mapping[int, Int64[np.ndarray, _]],
    progress: Callable[[int], object],
) -> Iterator[tuple[int, FittedLabels]]:
    """Yield the number and the classifiers of each block of labels, fitted on threads.

    Args:
        features: Training documents.
        by_label: The documents of each label.
        config: As for `SvmProblem`.
        seed: As there.
        blocks: Labels by number; each with a document.
        progress: Called with numbers of labels that are done.
    """
    problem = SvmProblem(features, by_label, config, seed=seed)
    with ThreadPoolExecutor(max_workers=cpu_count()) as threads:
        for number, block in blocks.items():
            chunks = np.array_split(block, -(-len(block) // _CHUNK_SIZE))
            parts = []
            for part in threads.map(problem.fit, chunks):
                parts.append(part)
                progress(len(part.sizes))
            yield number, joined(parts)


def fit_sparse_model(
    tfidf: TfidfModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
    config: SparseConfig,
    *,
    seed: int,
    folder: Path,
    engine: LabelEngine = fit_on_threads,
) -> SparseModel:
    """Fit one linear SVM for each label that has a training document (DEPL section 3.2).

    The loss is the (squared) hinge plus the norm of (w, b), as in liblinear; see
    `longtail.training.sparse.svm` for the documents that it is summed over. Blocks of labels are
    saved as they are done, so a run that was killed resumes after the last. Memory is that of the
    features, twice, and of the weights.

    Returns:
        The model; labels without training documents have no row in it. A label that every document
        carries gets zero weights and a bias of 1.
    """
    covered = np.unique(truth.indices).astype(np.int64)
    weights, bias = fit_label_columns(
        features, truth, covered, config, seed=seed, folder=folder, engine=engine
    )
    return SparseModel(tfidf, weights, bias, covered)


def fit_label_columns(
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
    labels: Int64[np.ndarray, covered],
    config: SparseConfig,
    *,
    seed: int,
    folder: Path,
    engine: LabelEngine = fit_on_threads,
) -> tuple[Float32[csr_array, "feature covered"], Float32[np.ndarray, covered]]:
    """Fit the linear SVMs of some labels (see `fit_sparse_model`).

    Args:
        features: Training documents.
        truth: Their labels, these and all others.
        labels: Those to fit, rising, each with a document.
        config: Loss, cost, pruning and working sets.
        seed: Seed of all that is random.
        folder: For the blocks; those of one call to a folder.
        engine: What fits them.

    Returns:
        Weights, a column for each label, and biases.
    """
    by_label = csr_array(truth.T)
    folder.mkdir(parents=True, exist_ok=True)
    paths = _paths_of_blocks(labels, folder)
    _fit_blocks(paths, partial(engine, features, by_label, config, seed))
    return _read_blocks(list(paths), len(labels), features.shape[1])


def _paths_of_blocks(
    labels: Int64[np.ndarray, covered], folder: Path
) -> dict[Path, Int64[np.ndarray, _]]:
    """Return the labels of each block, by its file."""
    blocks = [labels[i : i + _BLOCK_SIZE] for i in range(0, len(labels), _BLOCK_SIZE)]
    return {folder / f"labels-{x[0]:08d}-{x[-1]:08d}.safetensors": x for x in blocks}


def _fit_blocks(blocks: Mapping[Path, Int64[np.ndarray, _]], fit: LabelEngine) -> None:
    """Fit the labels of all blocks but those whose file is there."""
    paths = list(blocks)
    left = {number: blocks[path] for number, path in enumerate(paths) if not path.exists()}
    total, num_left = (sum(map(len, some.values())) for some in (blocks, left))
    with progress_bar(total=total, desc="sparse", unit="label") as bar:
        bar.update(total - num_left)
        for number, fitted in fit(left, bar.update):
            _save_block(paths[number], fitted)


def _save_block(path: Path, fitted: FittedLabels) -> None:
    arrays = {name: getattr(fitted, name) for name in ("sizes", "features", "weights", "bias")}
    save_arrays(path, arrays)


def _read_blocks(
    paths: list[Path], num_labels: int, num_features: int
) -> tuple[Float32[csr_array, "feature covered"], Float32[np.ndarray, covered]]:
    """Return the weights and biases of all blocks; one block at a time is held twice."""
    bias = np.concatenate([_NO_BIAS, *(load_file(path)["bias"] for path in paths)])

    def elements() -> Iterator[Elements]:
        first = 0
        for path in paths:
            block = load_file(path)
            rows = np.arange(first, first + len(block["sizes"]))
            yield block["features"], np.repeat(rows, block["sizes"]), block["weights"]
            first += len(rows)

    return csr_of_parts(elements, (num_features, num_labels)), bias
