"""What a title's words gain as features of their own, on documents with a title and a body.

    OMP_NUM_THREADS=1 python tests/bench/title_words.py CORPUS [--documents N] [--dev N] \
        [--weights 0.25 0.5 1] [--blends 0.5] [--json FILE]

A text is its title, a line feed and its body, as a corpus with `title` and `content` is read.
"none" has no words of titles as features of their own, the others have them with a weight
(`sparse.title_weight`). "twice" reads the title two times more in the same features instead. Each
variant is trained on the training documents, chosen and blended without an encoder on one half of
the dev split, and measured on the other, both ways. Differences to no title features are paired,
with standard errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64
from machine import begin
from recording import Table, add_json_option, keep
from scipy.sparse import csr_array

from longtail.models.kinds.registry import KINDS
from longtail.models.names import ENSEMBLE, NAMES, NEIGHBOURS
from longtail.models.options import RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.top_k import Ranking
from longtail.models.scorers.tfidf import TfidfModel, title_end
from longtail.training.assessment.assess import split_batches
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.held_out import with_held_out_dev
from longtail.training.data.overlap import with_splits_apart
from longtail.training.data.splits import Split
from longtail.training.data.survey import survey
from longtail.training.evaluation.metrics import (
    document_values_at,
    inverse_propensities,
    join_truth,
)
from longtail.training.fitting import DevDocuments, TrainingDocuments
from longtail.training.memory.fit import fit_memory
from longtail.training.pipeline.dev_split import DevSplit
from longtail.training.pipeline.encoder_free import with_languages_decided, with_markup_decided
from longtail.training.pipeline.fittings import FITTINGS
from longtail.training.sparse.fit import fit_sparse_model
from longtail.training.sparse.tfidf import fit_tfidf
from longtail.training.sparse.vocabulary import fit_tfidf_of

METRICS = ("P@1", "P@5", "nDCG@5", "nDCG@10", "PSP@5", "R@10")
NONE, TWICE = "none", "twice"


class TwiceTfidf(TfidfModel):
    """Tf-idf of texts whose first line is read two times more."""

    @classmethod
    def of(cls, model: TfidfModel) -> TwiceTfidf:
        """Return a model with the features of another one."""
        return cls(
            model.tokens, model.idf, model.forms.languages, model.max_ngram, model.analyzer,
            removes_markup=model.removes_markup,
        )  # fmt: skip

    def read(
        self, texts: Iterable[str]
    ) -> tuple[Float32[csr_array, "document feature"], Int64[np.ndarray, "document 2"]]:
        """Return the rows of texts, and the words of each."""
        return super().read(map(with_title_twice, texts))


def with_title_twice(text: str) -> str:
    """Return a text with its title two times more."""
    title = text[: title_end(text)]
    return f"{title}\n{title}\n{text}" if title else text


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--documents", type=int, help="training documents, spread; default all")
    parser.add_argument("--dev", type=int, help="dev documents, spread; default all")
    parser.add_argument("--weights", type=float, nargs="*", default=[0.25, 0.5, 0.75, 1.0])
    parser.add_argument("--blends", type=float, nargs="*", default=[])
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--ngrams", type=int, default=1)
    parser.add_argument("--cost", type=float, default=1.0)
    add_json_option(parser)
    asked = begin(parser)
    bench = Bench(asked)
    names: list[tuple[str, float, bool]] = [(NONE, 0.0, bool(asked.blends))]
    if asked.twice:
        names.append((TWICE, 0.0, bool(asked.blends)))
    names += [(f"{x:g}", x, x in asked.blends) for x in asked.weights]
    columns = {"features": "", "scorer": "", "documents": ""}
    for metric in METRICS:
        columns |= {metric: ".2f", f"{metric}: gain": "+.2f", f"{metric}: error": ".2f"}
    table = Table(columns)
    before: dict[str, dict[str, Float64[np.ndarray, document]]] = {}
    for name, weight, is_blended in names:
        for scorer, values in bench.values(name, weight, is_blended).items():
            known = before.setdefault(scorer, values)
            cells = []
            for metric in METRICS:
                gain = 100 * (values[metric] - known[metric])
                error = gain.std(ddof=1) / np.sqrt(len(gain))
                cells += [100 * values[metric].mean(), gain.mean(), error]
            table.add(name, scorer, len(values["P@1"]), *cells)
    keep(asked.json, {"title_words": table}, seeds=[0])


class Bench:
    """A corpus, and all that no variant changes."""

    def __init__(self, asked: argparse.Namespace) -> None:
        """Read the corpus, fit its features and names."""
        corpus = with_splits_apart(open_dataset(asked.corpus))
        if "dev" not in corpus.split_names:
            made = with_held_out_dev(corpus, 0.1)
            assert made is not None
            corpus = made
        some = {"train": asked.documents, "dev": asked.dev}
        corpus = corpus.with_splits({
            name: spread(corpus.split(name), most) for name, most in some.items() if most
        })  # fmt: skip
        training = corpus.split("train")
        surveyed = survey(training, 0)
        config = TrainingConfig().without_encoder
        sparse = config.sparse.model_copy(update={"max_ngram": asked.ngrams, "cost": asked.cost})
        config = config.model_copy(update={"sparse": sparse})
        config = with_markup_decided(config, surveyed.markup_share, corpus.folder)
        names = (label.name for label in corpus.catalogue)
        self.config = with_languages_decided(config, surveyed.languages, names, corpus.folder)
        self.corpus, self.unspaced = corpus, surveyed.unspaced_share
        self.truth = training.scan().labels
        self.settings: dict[str, Any] = {
            "languages": self.config.languages or (),
            "removes_markup": bool(self.config.remove_markup),
        }
        self.names: Any = None
        is_first = np.arange(len(list(corpus.split("dev").texts()))) % 2 == 0
        self.halves = [
            corpus.with_splits({"dev": corpus.split("dev").part(x)}) for x in (is_first, ~is_first)
        ]

    def tfidf(self, name: str, weight: float) -> tuple[TfidfModel, csr_array]:
        """Return the features of a variant."""
        training = self.corpus.split("train")
        sparse = self.config.sparse.model_copy(update={"title_weight": weight})
        if name == TWICE:
            twice = map(with_title_twice, training.texts())
            model, features = fit_tfidf(twice, sparse, **self.settings)
            return TwiceTfidf.of(model), features
        return fit_tfidf_of(training, sparse, self.unspaced, **self.settings)

    def values(
        self, name: str, weight: float, is_blended: bool
    ) -> dict[str, dict[str, Float64[np.ndarray, document]]]:
        """Return the metrics of each dev document, by scorer and metric."""
        tfidf, features = self.tfidf(name, weight)
        training, seed = self.corpus.split("train"), self.config.seed
        with TemporaryDirectory() as folder:
            sparse = fit_sparse_model(
                tfidf, features, self.truth, self.config.sparse, seed=seed, folder=Path(folder)
            )
        ids = [document.id for document in training]
        if self.names is None and is_blended:
            on = TrainingDocuments(
                training.texts, lambda: ids, features, self.truth, self.corpus.catalogue, sparse,
                lambda: None, seed,
            )  # fmt: skip
            self.names = FITTINGS[NAMES].fit(on, None, None)
        found: dict[str, list[dict[str, Float64[np.ndarray, document]]]] = {}
        for own, other in (self.halves, self.halves[::-1]):
            dev = own.split("dev")
            memory = fit_memory(
                features,
                self.truth,
                ids,
                DevDocuments(tfidf.transform(dev.texts()), dev.scan().labels),
            )
            models = {NEIGHBOURS: memory}
            if is_blended and self.names is not None:
                models[NAMES] = self.names
            parts = ModelParts(self.corpus.catalogue, sparse, None, models)
            for scorer, ranking in self.ranked(parts, own, other, is_blended).items():
                found.setdefault(scorer, []).append(self.measured(ranking, other))
        return {
            scorer: {x: np.concatenate([each[x] for each in halves]) for x in METRICS}
            for scorer, halves in found.items()
        }

    def ranked(
        self, parts: ModelParts, own: Dataset, other: Dataset, is_blended: bool
    ) -> dict[str, Ranking]:
        """Return what all scorers, with a blend fitted on one half, rank on the other."""
        with TemporaryDirectory() as folder:
            num_documents = self.truth.shape[0]
            dev = DevSplit.of(own, parts, num_documents, Path(folder))
            predictor = dev.predictor
            if is_blended:
                found = dev.blending({ENSEMBLE: tuple(KINDS)})
                predictor = predictor.with_blending(found.calibrations, found.blends)
        rows = other.split("dev").scan().labels.shape[0]
        batches = list(split_batches(predictor, other, "dev", rows))
        return {
            scorer: Ranking.joined([
                predictor.rank(batch, RankingOptions(k=10, scorer=scorer)) for batch in batches
            ])
            for scorer in predictor.scorers.names
        }  # fmt: skip

    def measured(
        self, ranking: Ranking, corpus: Dataset
    ) -> dict[str, Float64[np.ndarray, document]]:
        """Return the metrics of each document."""
        joined = join_truth(ranking.labels, corpus.split("dev").scan().labels)
        weights = inverse_propensities(
            np.asarray(self.corpus.catalogue.training_counts), self.truth.shape[0]
        )
        found: dict[str, Float64[np.ndarray, document]] = {}
        for k in (1, 5, 10):
            found |= document_values_at(joined, k, weights)
        found["R@10"] = joined.top(10)[1].sum(axis=1) / np.maximum(joined.num_true, 1)
        return found


def spread(split: Split, most: int) -> Split:
    """Return documents at equal distances."""
    total = split.scan().labels.shape[0]
    is_in = np.zeros(total, dtype=np.bool_)
    is_in[np.linspace(0, total - 1, min(most, total)).astype(np.int64)] = True
    return split.part(is_in)


if __name__ == "__main__":
    main()
