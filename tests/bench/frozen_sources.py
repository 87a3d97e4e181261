"""What sources of frozen vectors gain on dev, beside a blend without an encoder.

    python tests/bench/frozen_sources.py REGISTRY CORPUS --vectors FOLDER [--tokens 128]

REGISTRY has a model of the corpus; its scorers without an encoder are blended with nearest
documents by vectors of the packaged encoder, and with names of labels by these vectors. A blend is
fitted on one half of the dev documents and ranks the other. Every row ranks the same candidates:
the best labels of every scorer, of the nearest documents, and of the names. "difference" is that of
nDCG@5 to "without an encoder", with its standard error over documents. Vectors are kept in FOLDER.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from machine import begin
from recording import Table, add_json_option, keep
from scipy.sparse import csr_array, vstack

from longtail.models.bundle.registry import Registry
from longtail.models.encoders.dual_encoder import DualEncoder, encode_all
from longtail.models.encoders.families import VectorHead
from longtail.models.encoders.pretrained import find_encoder, load_tokenizer, load_transformer
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.kinds.registry import KINDS
from longtail.models.metrics import document_values_at
from longtail.models.names import ENSEMBLE
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.calibration.ensemble import calibrations_of
from longtail.training.calibration.members import DevRanking
from longtail.training.calibration.scored_pairs import (
    ScoredPairs,
    rank_best,
    score_pairs,
    spread_rows,
)
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.overlap import with_splits_apart
from longtail.training.neural.document_vectors import inference_copy
from longtail.training.runtime.distributed import find_machine

NUM_NEIGHBOURS, TEMPERATURE, NUM_LISTED, NUM_NAMES = 40, 1 / 12, 64, 100
WITHOUT, NEAREST, NAMES = "without an encoder", "nearest documents", "and names of labels"
Source = csr_array
"""Scores of the labels that a source lists, by document."""


@dataclass
class Vectors:
    """Vectors of the packaged encoder, each file of them made once.

    Attributes:
        folder: Folder of the files.
        corpus: With the texts.
        tokens: Most tokens of a text that are read.
    """

    folder: Path
    corpus: Dataset
    tokens: int

    def of(self, split: str) -> np.ndarray:
        """Return unit vectors of a split's documents, or of the names of the "labels"."""
        path = self.folder / f"{self.corpus.folder.name}_{split}_{self.tokens}.npy"
        if not path.exists():
            if split == "labels":
                texts = [label.name for label in self.corpus.catalogue]
            else:
                texts = list(self.corpus.split(split).texts())
            np.save(path, self._encoded(texts).astype(np.float16))
        found = np.load(path).astype(np.float32)
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        return found / np.where(norms > 0, norms, 1)

    def _encoded(self, texts: Sequence[str]) -> np.ndarray:
        source = find_encoder("packaged")
        head = VectorHead("mean", "mean", "identity", True)
        encoder = DualEncoder(load_transformer(source.folder), head)
        tokenized = tokenize_texts(load_tokenizer(source.folder), texts, self.tokens, "")
        fast = inference_copy(encoder, find_machine("auto"))
        return encode_all(fast, tokenized, "document", pad_id=0)


def nearest(similarities: Iterable[np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k most similar rows of each query, and how similar they are."""
    found = []
    for part in similarities:
        rows = np.argpartition(-part, k - 1, axis=1)[:, :k]
        values = np.take_along_axis(part, rows, axis=1)
        order = np.argsort(-values, axis=1, kind="stable")
        found.append([np.take_along_axis(x, order, axis=1) for x in (rows, values)])
    rows, values = (np.concatenate(each) for each in zip(*found, strict=True))
    return rows, values


def cosines(queries: np.ndarray, rows: np.ndarray, size: int = 256) -> Iterable[np.ndarray]:
    """Yield inner products of some queries with all rows."""
    for start in range(0, len(queries), size):
        yield queries[start : start + size] @ rows.T


def log_shares(found: tuple[np.ndarray, np.ndarray], carried: csr_array) -> Source:
    """Return the logarithm of the share of each label among the nearest rows."""
    rows, values = found
    shares = np.exp((values - values[:, :1]) / TEMPERATURE)
    shares /= shares.sum(axis=1, keepdims=True)
    starts = np.arange(0, rows.size + 1, rows.shape[1])
    shape = len(rows), carried.shape[0]
    summed = csr_array(csr_array((shares.ravel(), rows.ravel(), starts), shape=shape) @ carried)
    summed.data = np.log(summed.data).astype(np.float32)
    summed.sort_indices()
    return summed


def top(source: Source, k: int = NUM_LISTED) -> Ranking:
    """Return the best labels that a source lists."""
    labels = np.full((source.shape[0], k), NO_LABEL, dtype=np.int64)
    scores = np.full((source.shape[0], k), -np.inf, dtype=np.float32)
    for row, (start, end) in enumerate(zip(source.indptr, source.indptr[1:], strict=False)):
        best = np.argsort(-source.data[start:end], kind="stable")[:k]
        labels[row, : len(best)] = source.indices[start:end][best]
        scores[row, : len(best)] = source.data[start:end][best]
    return Ranking(labels, scores)


def scores_at(source: Source, labels: np.ndarray) -> np.ndarray:
    """Return the scores of given labels; -inf of those that are not listed."""
    found = np.full(labels.shape, -np.inf, dtype=np.float32)
    for row, (start, end) in enumerate(zip(source.indptr, source.indptr[1:], strict=False)):
        listed = source.indices[start:end]
        if len(listed):
            places = np.minimum(np.searchsorted(listed, labels[row]), len(listed) - 1)
            is_listed = listed[places] == labels[row]
            found[row, is_listed] = source.data[start:end][places[is_listed]]
    return found


class Trial:
    """Ranks the dev documents of a corpus by blends with more sources."""

    def __init__(
        self, registry: Path, version: str, corpus: Path, folder: Path, tokens: int, most: int
    ) -> None:
        """Read the corpus and the model.

        Args:
            registry: Registry of a model without an encoder.
            version: The model's version, which has not seen the dev documents.
            corpus: Its corpus, with a dev split.
            folder: The vectors' folder.
            tokens: That the encoder reads of a text.
            most: Dev documents.
        """
        bundle = Registry(registry).open(version)
        self.predictor = Predictor.of_bundle(bundle)
        blended = bundle.manifest.blends[ENSEMBLE].weights
        self.members = tuple(name for name in blended if not KINDS[name].needs_encoder)
        self.corpus = with_splits_apart(open_dataset(corpus))
        self.carried = csr_array(self.corpus.split("train").scan().labels)
        dev = self.corpus.split("dev")
        self.rows = spread_rows(dev.scan().labels.shape[0], most)
        self.truth = csr_array(dev.scan().labels[self.rows])
        texts = list(dev.texts())
        self.texts = [texts[row] for row in self.rows]
        self.vectors = Vectors(folder, self.corpus, tokens)

    def forms(self) -> dict[str, dict[str, Source]]:
        """Return the sources that are added, by form and name."""
        dev, train = self.vectors.of("dev")[self.rows], self.vectors.of("train")
        main = log_shares(nearest(cosines(dev, train), NUM_NEIGHBOURS), self.carried)
        listed = [
            csr_array(np.where(x >= np.partition(x, -NUM_NAMES)[:, [-NUM_NAMES]], x, 0))
            for x in cosines(dev, self.vectors.of("labels"))
        ]
        by_name = csr_array(vstack(listed)).astype(np.float32)
        by_name.sort_indices()
        return {
            WITHOUT: {},
            NEAREST: {"dense": main},
            NAMES: {"dense": main, "by name": by_name},
        }

    def candidates(self, sources: Sequence[Source]) -> ScoredPairs:
        """Return the pairs that are ranked, with those that these sources list first."""
        parts, first, more = [], 0, [top(source) for source in sources]
        for texts in chunks(self.texts):
            batch, last = self.predictor.read(texts), first + len(texts)
            ranked = rank_best(self.predictor, batch)
            for name, each in enumerate(more):
                ranked[f"{name}"] = Ranking(each.labels[first:last], each.scores[first:last])
            truth = csr_array(self.truth[first:last])
            parts.append(score_pairs(self.predictor, batch, truth, first, ranked))
            first = last
        return ScoredPairs.joined(parts)

    def ranking(self, pairs: ScoredPairs) -> DevRanking:
        """Return the dev split with these pairs."""
        return DevRanking.of(pairs, self.truth, self.predictor.catalogue, self.carried.shape[0])


def measures(dev: DevRanking, scores: np.ndarray) -> tuple[list[float], np.ndarray]:
    """Return P@1, P@5, nDCG@5, PSP@5, R@10 and R@100 in percent, and nDCG@5 of each document.

    R@100 is among all labels: a drawn one takes as many places as it stands for.
    """
    hits = dev.joined(scores, 10).is_hit
    num_true = np.maximum(1, np.diff(dev.truth.indptr))
    of_documents = document_values_at(dev.joined(scores, 5), 5, dev.propensity_weights)
    ndcg, psp = (100 * of_documents[name] for name in ("nDCG@5", "PSP@5"))
    recall = 100 * (hits.sum(axis=1) / num_true).mean()
    order = np.argsort(-scores, axis=1, kind="stable")
    places = np.take_along_axis(dev.pairs.weights, order, axis=1).cumsum(axis=1)
    is_found = np.take_along_axis(dev.pairs.is_true & (scores > -np.inf), order, axis=1)
    deep = 100 * ((is_found & (places <= 100)).sum(axis=1) / num_true).mean()
    precisions = [100 * float(hits[:, :k].mean()) for k in (1, 5)]
    return [*precisions, float(ndcg.mean()), float(psp.mean()), float(recall), float(deep)], ndcg


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--version", default="current")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--documents", type=int, default=2000, help="dev documents, at most")
    add_json_option(parser)
    args = begin(parser)
    trial = Trial(
        args.registry, args.version, args.corpus, args.vectors, args.tokens, args.documents
    )
    forms = trial.forms()
    plain = trial.candidates([*forms[NAMES].values()])
    percent = dict.fromkeys(("P@1", "P@5", "nDCG@5", "PSP@5", "R@10", "R@100"), ".2f")
    table = Table({"dev, in percent": "", **percent, "difference": "+.2f", "error": ".2f"})
    reference = None
    for name, form in forms.items():
        values, ndcg = measured(trial, plain, form)
        reference = ndcg if reference is None else reference
        difference = ndcg - reference
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        table.add(name, *values, difference.mean(), error)
    keep(args.json, {"dev": table, "documents": len(trial.rows)}, seeds=[0])


def measured(
    trial: Trial, plain: ScoredPairs, form: Mapping[str, Source]
) -> tuple[list[float], np.ndarray]:
    """Return the measures of a blend with more sources, and nDCG@5 of each document."""
    scores = {name: plain.scores[name] for name in trial.members}
    scores |= {name: scores_at(source, plain.labels) for name, source in form.items()}
    pairs = replace(plain, scores=scores)
    dev, calibrations = trial.ranking(pairs), calibrations_of(pairs)
    ranked = dev.cross_fitted([name for name in scores if name in calibrations], calibrations)
    return measures(dev, ranked)


if __name__ == "__main__":
    main()
