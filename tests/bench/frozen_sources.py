"""What sources of frozen vectors gain on dev, and what the form of the blend loses.

    python tests/bench/frozen_sources.py REGISTRY CORPUS --vectors FOLDER [--tokens 128]

REGISTRY holds a model of the corpus; its scorers without an encoder are blended with nearest
documents by vectors of the packaged encoder, in several forms. A blend is fitted on one
half of the dev documents and ranks the other. Every row ranks the same candidates: the best labels
of every scorer, of the nearest documents, of the names, and of the search by both. The temperature
of a form is the one of `TEMPERATURES` that ranks dev best by nDCG@5 alone. "difference" is that of
nDCG@5 to "nearest documents", with its standard error over documents. Vectors are kept in the
folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
from machine import begin
from recording import Table, add_json_option, keep
from scipy.sparse import csr_array, eye_array, vstack
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from longtail.models.bundle.registry import Registry
from longtail.models.encoders.dual_encoder import DualEncoder, encode_all
from longtail.models.encoders.families import VectorHead
from longtail.models.encoders.pretrained import find_encoder, load_tokenizer, load_transformer
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.kinds.registry import KINDS
from longtail.models.names import ENSEMBLE
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.calibration import blends
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
from longtail.training.evaluation.metrics import document_values_at, join_truth, ndcg_at
from longtail.training.neural.document_vectors import inference_copy
from longtail.training.runtime.distributed import find_machine

NUM_NEIGHBOURS, TEMPERATURE, NUM_LISTED = 40, 1 / 12, 64
TEMPERATURES = (1 / 6, TEMPERATURE, 1 / 20, 1 / 30)
SHARES = (0.25, 0.5, 0.75)
BANDS = ((0, 0), (1, 4), (5, 29), (30, 199), (200, 10**9))
NEAREST, NAMES = "nearest documents", "and names of labels"
Source = csr_array
"""Scores of the labels that a source lists, by document."""


def halves(text: str) -> tuple[str, str]:
    """Return the first line of a text, and the rest, or the line again where there is no more."""
    first, _, rest = text.partition("\n")
    return first, rest.strip() or first


@dataclass
class Vectors:
    """Vectors of the packaged encoder, each file of them made once.

    Attributes:
        folder: Of the files.
        corpus: With the texts.
        tokens: That are read, where a variant is no number.
    """

    folder: Path
    corpus: Dataset
    tokens: int

    def of(self, split: str, variant: str) -> np.ndarray:
        """Return unit vectors of a split's documents, or of the names of the "labels"."""
        path = self.folder / f"{self.corpus.folder.name}_{split}_{variant}.npy"
        if not path.exists():
            if split == "labels":
                texts = [label.name for label in self.corpus.catalogue]
            else:
                texts = list(self.corpus.split(split).texts())
            np.save(path, self._encoded(texts, variant).astype(np.float16))
        found = np.load(path).astype(np.float32)
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        return found / np.where(norms > 0, norms, 1)

    def _encoded(self, texts: Sequence[str], variant: str) -> np.ndarray:
        if variant in ("title", "body"):
            texts = [halves(text)[variant == "body"] for text in texts]
        source = find_encoder("packaged")
        pooling = "cls" if variant == "cls" else "mean"
        encoder = DualEncoder(
            load_transformer(source.folder), VectorHead(pooling, pooling, "identity", True)
        )
        tokens = int(variant) if variant.isdigit() else self.tokens
        tokenized = tokenize_texts(load_tokenizer(source.folder), texts, tokens, "")
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


def log_shares(
    found: tuple[np.ndarray, np.ndarray], carried: csr_array, temperature: float
) -> Source:
    """Return the logarithm of the share of each label among the nearest rows."""
    rows, values = found
    shares = np.exp((values - values[:, :1]) / temperature)
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


def whitened(vectors: np.ndarray, *, only_centred: bool = False) -> Callable:
    """Return a map that centres vectors, and takes away what their components have in common."""
    mean = vectors.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov((vectors - mean).T.astype(np.float64)))
    matrix = (axes / np.sqrt(values + 0.1 * values.mean())) @ axes.T
    matrix = np.eye(len(mean)) if only_centred else matrix

    def mapped(some: np.ndarray) -> np.ndarray:
        found = (some - mean) @ matrix.astype(np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return mapped


class Trial:
    """Ranks the dev documents of a corpus by blends with more sources."""

    def __init__(
        self, registry: Path, version: str, corpus: Path, folder: Path, tokens: int, most: int
    ) -> None:
        """Read the corpus and the model.

        Args:
            registry: Of a model without an encoder.
            version: Of the model, which has not seen the dev documents.
            corpus: Its corpus, with a dev split.
            folder: Of the vectors.
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
        self.main = str(tokens)
        self.is_offline = False
        self.counts = self.predictor.catalogue.training_counts

    def pair(self, variant: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of the dev documents, and of the training documents."""
        return self.vectors.of("dev", variant)[self.rows], self.vectors.of("train", variant)

    def by(
        self,
        similarities: Iterable[np.ndarray],
        carried: csr_array | None = None,
        temperature: float | None = None,
    ) -> Source:
        """Return the source of the nearest documents by similarity; None: the best temperature."""
        carried = self.carried if carried is None else carried
        found = nearest(similarities, NUM_NEIGHBOURS)
        tried = TEMPERATURES if temperature is None else (temperature,)
        sources = [log_shares(found, carried, each) for each in tried]
        return max(sources, key=self.alone)

    def alone(self, source: Source) -> float:
        """Return nDCG@5 of a source."""
        return ndcg_at(join_truth(top(source, 5).labels, self.truth), 5)

    def forms(self) -> dict[str, dict[str, Source]]:
        """Return the forms that are tried: sources by name."""
        dev, train = self.pair(self.main)
        main = self.by(cosines(dev, train), temperature=TEMPERATURE)
        found = {"without an encoder": {}, NEAREST: {"dense": main}}
        sharper = self.by(cosines(dev, train), temperature=1 / 40)
        found["at two temperatures, 1/12 and 1/40"] = {"dense": main, "sharp": sharper}
        for tokens in ("64", "128", "256"):
            if tokens != self.main and self._has(tokens):
                found[f"of {tokens} tokens"] = {"dense": self.by(cosines(*self.pair(tokens)))}
        if self._has("cls"):
            found["of [CLS]"] = {"dense": self.by(cosines(*self.pair("cls")))}
        for name, only in (("centred", True), ("whitened", False)):
            mapped = whitened(train, only_centred=only)
            found[name] = {"dense": self.by(cosines(mapped(dev), mapped(train)))}
        if self._has("title") and self._has("body"):
            found |= self._of_halves(main)
        if self._has(self.main, "labels"):
            found |= self._with_names(dev, train, main)
        return found | self._with_words(dev, train)

    def _with_names(
        self, dev: np.ndarray, train: np.ndarray, main: Source
    ) -> dict[str, dict[str, Source]]:
        """Return names of labels as documents of these, and as the product has them."""
        names = self.vectors.of("labels", self.main)
        both = csr_array(vstack([self.carried, eye_array(len(names), dtype=np.float32)]))
        listed = [
            csr_array(np.where(-x <= np.partition(-x, 99, axis=1)[:, 99:100], x, 0))
            for x in cosines(dev, names)
        ]
        by_name = csr_array(vstack(listed)).astype(np.float32)
        by_name.sort_indices()
        rows = np.concatenate([train, names])
        return {
            "with labels' names as documents": {"dense": self.by(cosines(dev, rows), both)},
            NAMES: {"dense": main, "by name": by_name},
        }

    def _has(self, variant: str, split: str = "train") -> bool:
        folder, name = self.vectors.folder, self.corpus.folder.name
        return (folder / f"{name}_{split}_{variant}.npy").exists() or not self.is_offline

    def _of_halves(self, main: Source) -> dict[str, dict[str, Source]]:
        title, body = self.pair("title"), self.pair("body")
        sources = {"title": self.by(cosines(*title)), "body": self.by(cosines(*body))}
        summed = [
            self.by(
                a + share * (b - a) for a, b in zip(cosines(*title), cosines(*body), strict=True)
            )
            for share in SHARES
        ]
        return {
            "of first line and rest, two sources": sources,
            "and of the whole": sources | {"dense": main},
            "of first line and rest, summed": {"dense": max(summed, key=self.alone)},
        }

    def _with_words(self, dev: np.ndarray, train: np.ndarray) -> dict[str, dict[str, Source]]:
        """Return the sum of the cosines of tf-idf and of vectors, of the best of some shares."""
        tfidf = self.predictor.parts.sparse.tfidf
        words = tfidf.transform(iter(self.texts))
        documents = tfidf.transform(self.corpus.split("train").texts()).T.tocsc()
        near = [
            ((words[start : start + 256] @ documents).toarray(), part)
            for start, part in zip(range(0, len(dev), 256), cosines(dev, train), strict=True)
        ]
        summed = {share: self.by(a + share * (b - a) for a, b in near) for share in (0, *SHARES, 1)}
        best = max(SHARES, key=lambda share: self.alone(summed[share]))
        for share, source in summed.items():
            print(f"alone, {share} of the vectors: nDCG@5 {100 * self.alone(source):.2f}")
        return {
            "by words and by vectors, two searches": {"words": summed[0], "dense": summed[1]},
            f"by words and by vectors, one search ({best} of the vectors)": {"both": summed[best]},
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


def stacked(dev: DevRanking, names: Sequence[str], counts: np.ndarray, model: str) -> np.ndarray:
    """Return scores of each half by a plain stacking of the same scores, fitted on the other.

    Args:
        dev: The dev split.
        names: Of the scorers.
        counts: Training documents of each label.
        model: "bands", a logistic regression for each of `BANDS`; or "trees", boosted ones.
    """
    pairs, columns = dev.pairs, []
    for name in names:
        scores = pairs.scores[name]
        is_missing = np.isneginf(scores)
        columns += [np.where(is_missing, scores[~is_missing].min(), scores), is_missing]
    of_label = counts[np.maximum(pairs.labels, 0)]
    features = np.stack([*columns, np.log1p(of_label)], axis=-1)
    features = (features - features[pairs.is_best].mean(axis=0)) / (
        features[pairs.is_best].std(axis=0) + 1e-6
    )
    bands = BANDS if model == "bands" else ((0, 10**9),)
    folds = (np.arange(len(pairs.labels)) % 2)[:, None]
    found = np.full(pairs.labels.shape, -np.inf, dtype=np.float32)
    for fold in (0, 1):
        for least, most in bands:
            is_in = pairs.is_best & (of_label >= least) & (of_label <= most)
            own, others = is_in & (folds == fold), is_in & (folds != fold)
            if not own.any():
                continue
            if not pairs.is_true[others].any():
                found[own] = -20
                continue
            fitted = (
                LogisticRegression(max_iter=300)
                if model == "bands"
                else HistGradientBoostingClassifier(
                    learning_rate=0.06, max_iter=200, max_leaf_nodes=15, min_samples_leaf=50,
                    l2_regularization=5, random_state=0,
                )
            )  # fmt: skip
            fitted.fit(features[others], pairs.is_true[others])
            found[own] = fitted.decision_function(features[own])
    return found


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
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("registry", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--version", default="current")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--documents", type=int, default=2000, help="dev documents, at most")
    parser.add_argument("--offline", action="store_true", help="leave out what is not encoded")
    add_json_option(parser)
    args = begin(parser)
    trial = Trial(
        args.registry, args.version, args.corpus, args.vectors, args.tokens, args.documents
    )
    trial.is_offline = args.offline
    forms = trial.forms()
    main_form, *_, last = (forms[NEAREST], *forms.values())
    named = forms.get(NAMES, {})
    plain = trial.candidates([*main_form.values(), *named.values(), *last.values()])
    percent = dict.fromkeys(("P@1", "P@5", "nDCG@5", "PSP@5", "R@10", "R@100"), ".2f")
    table = Table({"dev, in percent": "", **percent, "difference": "+.2f", "error": ".2f"})
    rows = []
    for name, form in forms.items():
        rows.append((name, *measured(trial, plain, form)))
        if name == NEAREST:
            reference, dev = rows[-1][2:]
            with mock.patch.object(blends, "_OTHERS", 1.0):
                rows.append((f"{NEAREST}, all pairs whole", *measured(trial, plain, form)))
            for model in ("bands", "trees"):
                scores = stacked(dev, tuple(dev.pairs.scores), trial.counts, model)
                rows.append((f"the same scores, stacked by {model}", *measures(dev, scores), dev))
    for name, values, ndcg, _ in rows:
        difference = ndcg - reference
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        table.add(name, *values, difference.mean(), error)
    keep(args.json, {"dev": table, "documents": len(trial.rows)}, seeds=[0])


def measured(
    trial: Trial, plain: ScoredPairs, form: Mapping[str, Source]
) -> tuple[list[float], np.ndarray, DevRanking]:
    """Return the measures of a blend with more sources, and the pairs that it was fitted on."""
    scores = {name: plain.scores[name] for name in trial.members}
    scores |= {name: scores_at(source, plain.labels) for name, source in form.items()}
    pairs = replace(plain, scores=scores)
    dev, calibrations = trial.ranking(pairs), calibrations_of(pairs)
    ranked = dev.cross_fitted([name for name in scores if name in calibrations], calibrations)
    return *measures(dev, ranked), dev


if __name__ == "__main__":
    main()
