"""Longtail's method without an encoder, in 300 lines: SVMs, names, blend, exact top k, bands.

    python docs/explanation/longtail_in_300_lines.py training/demo_data

The product adds stems, better samples, more evidence of names, neighbours, vectors of words
(`longtail.models.scorers.word_vectors`), checks and speed.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC

KNOTS = np.array([0, 1, 3, 10, 50])  # training documents at which the blend has weights
BANDS = {"0": (0, 0), "1-9": (1, 9), "10-99": (10, 99), "100+": (100, 10**9)}


# ---- the corpus ----


@dataclass
class Split:
    """Documents of one split."""

    titles: list[str]
    texts: list[str]  # with the title
    truth: np.ndarray  # 1 where a document carries a label: (document, label)


def read_lines(path: Path) -> list[dict]:
    """Read a file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_split(path: Path, num_labels: int) -> Split:
    """Read the documents of a split."""
    lines = read_lines(path)
    truth = np.zeros((len(lines), num_labels), dtype=np.float32)
    for row, line in zip(truth, lines, strict=True):
        row[line["target_ind"]] = 1
    texts = [f"{line['title']}\n{line['content']}" for line in lines]
    return Split([line["title"] for line in lines], texts, truth)


# ---- evidence 1: a linear SVM for each label ----


@dataclass
class Svms:
    """One linear classifier for each label that has training documents."""

    tfidf: Pipeline
    weights: np.ndarray  # (feature, label); 0 for labels without training documents
    bias: np.ndarray  # -1 for labels without training documents

    def scores(self, texts: list[str]) -> np.ndarray:
        """Return the signed distances of texts from the planes: (document, label)."""
        return self.tfidf.transform(texts) @ self.weights + self.bias


def fit_svms(train: Split, rng: np.random.Generator) -> Svms:
    """Fit each label against the documents most like its own, and random ones: all cost more."""
    rule = {"sublinear_tf": True, "min_df": 2, "max_df": 0.7, "dtype": np.float32}
    titles = TfidfVectorizer(**rule, preprocessor=lambda text: text.partition("\n")[0].lower())
    both = [("words", TfidfVectorizer(**rule)), ("titles", titles)]
    tfidf = make_pipeline(FeatureUnion(both, transformer_weights={"titles": 0.5}), Normalizer())
    features = csr_array(tfidf.fit_transform(train.texts))
    num_labels = train.truth.shape[1]
    weights = np.zeros((features.shape[1], num_labels), dtype=np.float32)
    bias = np.full(num_labels, -1.0, dtype=np.float32)
    for label in np.flatnonzero(train.truth.any(axis=0)):
        own = np.flatnonzero(train.truth[:, label])
        likeness = features @ features[own].mean(axis=0)
        hard = np.argsort(-likeness, kind="stable")[: 100 + 10 * len(own)]
        drawn = rng.choice(len(train.texts), 200, replace=False)
        rows = np.unique(np.concatenate([own, hard, drawn]))
        svm = LinearSVC(C=2.0 if len(own) < 10 else 1.0).fit(features[rows], np.isin(rows, own))
        weights[:, label], bias[label] = svm.coef_[0], svm.intercept_[0]
    return Svms(tfidf, weights, bias)


# ---- evidence 2: names of labels in the text ----


def words_of(text: str) -> list[str]:
    """Return the words of a text in the form in which they are compared: without a plural s."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return [w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in words]


@dataclass
class Names:
    """Finds names in texts and says how likely each one means its label."""

    phrases: list[str]  # the words of each name, with a blank at both ends
    labels: np.ndarray  # of each name
    counter: CountVectorizer  # of the words of names
    names: csr_array  # idf of the words of each name: (name, word)
    finds: np.ndarray  # training documents in which a label's name was found
    right: np.ndarray  # those of them that carry the label
    trees: HistGradientBoostingClassifier  # log-odds of a match, from its features

    def matches(self, split: Split) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return document, label and features of the best name of each label in each document."""
        counts = csr_array(self.counter.transform(split.texts))
        totals = np.asarray(self.names.sum(axis=1))
        found = []
        for document, (title, text) in enumerate(zip(split.titles, split.texts, strict=True)):
            words = counts.indices[counts.indptr[document] : counts.indptr[document + 1]]
            is_there = np.zeros(self.names.shape[1])
            is_there[words] = 1
            shares = (self.names @ is_there) / totals  # of a name's idf, in the text
            whole, start = (f" {' '.join(words_of(x))} " for x in (text, title))
            best: dict[int, list[float]] = {}
            for name in np.flatnonzero(shares > 0.6):
                phrase, label = self.phrases[name], int(self.labels[name])
                times = whole.count(phrase) if shares[name] > 0.999 else 0
                first = whole.find(phrase) / len(whole) if times else 1.0
                traits = (times > 0, shares[name], np.log1p(times), first, phrase in start)
                features = [float(x) for x in (*traits, totals[name], phrase.count(" "))]
                best[label] = max(best.get(label, features), features)
            found += [(document, label, *features) for label, features in best.items()]
        table = np.array(found)
        return table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:]

    def with_habits(self, labels: np.ndarray, features: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Add how often the name was right where it was found, in other documents than this one.

        `own` is 1 in training documents that carry the label, 0 in others, and -1 in new documents.
        """
        finds = self.finds[labels] - (own >= 0)
        right = self.right[labels] - (own == 1)
        habit = np.log((right + 0.5) / (finds - right + 0.5))
        return np.column_stack([features, habit, np.log1p(finds)])

    def scores(self, split: Split) -> np.ndarray:
        """Return log-odds, -inf for labels that no name speaks for: (document, label)."""
        documents, labels, features = self.matches(split)
        found = np.full((len(split.texts), len(self.finds)), -np.inf, dtype=np.float32)
        features = self.with_habits(labels, features, np.full(len(labels), -1))
        found[documents, labels] = self.trees.decision_function(features)
        return found


def fit_names(names: list[list[str]], train: Split) -> Names:
    """Learn from the training documents which finds of names are to be trusted."""
    pairs = [(label, tuple(words_of(x))) for label, some in enumerate(names) for x in some]
    pairs = sorted({pair for pair in pairs if pair[1]})
    labels = np.array([label for label, _ in pairs])
    vocabulary = {word: i for i, word in enumerate(sorted({w for _, x in pairs for w in x}))}
    counter = CountVectorizer(analyzer=words_of, vocabulary=vocabulary)
    counts = counter.transform(train.texts)
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log((1 + len(train.texts)) / (1 + frequency)) + 1
    rows = [row for row, (_, words) in enumerate(pairs) for _ in set(words)]
    columns = [vocabulary[w] for _, words in pairs for w in set(words)]
    weighted = csr_array((idf[columns], (rows, columns)), shape=(len(pairs), len(idf)))
    trees = HistGradientBoostingClassifier(max_iter=150, learning_rate=0.08, random_state=0)
    none = np.zeros(train.truth.shape[1])
    phrases = [f" {' '.join(words)} " for _, words in pairs]
    found = Names(phrases, labels, counter, weighted, none, none, trees)
    documents, carried, features = found.matches(train)
    own = train.truth[documents, carried]
    found.finds = np.bincount(carried, minlength=len(none))
    found.right = np.bincount(carried, weights=own, minlength=len(none))
    trees.fit(found.with_habits(carried, features, own), own)
    return found


# ---- the blend: weights that depend on how rare a label is ----


def hats(counts: np.ndarray) -> np.ndarray:
    """Return the share of each knot in a label: linear in ln(1 + n) between two knots."""
    places = np.log1p(counts)
    return np.stack([np.interp(places, np.log1p(KNOTS), row) for row in np.eye(len(KNOTS))], -1)


@dataclass
class Blend:
    """Adds up the evidence of scorers: w_0(n) + sum_i w_i(n) max(s_i, floor_i)."""

    shares: np.ndarray  # of the knots in each label: (label, knot)
    floors: np.ndarray  # the lowest score of each scorer that says anything
    weights: np.ndarray  # (knot, 1 + scorer); w_i >= 0, so the blend never falls as a score rises

    def log_odds(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the log-odds of labels from their scores: (scorer, *labels.shape)."""
        own = self.shares[labels] @ self.weights
        evidence = np.maximum(np.moveaxis(scores, 0, -1), self.floors)
        return own[..., 0] + (own[..., 1:] * evidence).sum(axis=-1)

    def bound(self, scores: np.ndarray) -> float:
        """Return what no label exceeds whose scores are at most these.

        Between two knots all weights are linear, so the largest value is at a knot.
        """
        evidence = np.maximum(scores, self.floors)
        return float((self.weights[:, 0] + self.weights[:, 1:] @ evidence).max())


def fit_blend(scores: np.ndarray, truth: np.ndarray, counts: np.ndarray) -> Blend:
    """Fit the weights on documents that training did not see, by logistic regression.

    The scores are (scorer, document, label), the truth (document, label), the counts of each label.
    """
    floors = np.array([-1.0, -6.0])
    near = np.argsort(-scores[0], axis=1)[:, :100]  # most labels say nothing: leave them out
    is_seen = np.isfinite(scores[1])
    np.put_along_axis(is_seen, near, values=True, axis=1)
    documents, labels = np.nonzero(is_seen)
    evidence = np.maximum(scores[:, documents, labels].T, floors)
    terms = np.column_stack([np.ones(len(labels)), evidence])
    shares = hats(counts)
    table = (shares[labels][:, :, None] * terms[:, None, :]).reshape(len(labels), -1)
    model = LogisticRegression(C=1.0, fit_intercept=False, max_iter=2000)
    model.fit(table, truth[documents, labels])
    weights = model.coef_.reshape(len(KNOTS), terms.shape[1])
    weights[:, 1:] = np.maximum(weights[:, 1:], 0)
    return Blend(shares, floors, weights)


# ---- the exact top k ----


def top_k(blend: Blend, scores: np.ndarray, k: int) -> tuple[np.ndarray, int]:
    """Return the k best labels of a document, and how many labels were scored to be sure of them.

    The threshold algorithm (Fagin et al. 2001): labels are taken in the order of each scorer until
    none that is still to come can beat the k best so far. The scores are (scorer, label).
    """
    orders = np.argsort(-scores, axis=1, kind="stable")
    seen: dict[int, float] = {}
    for depth in range(0, scores.shape[1], 20):
        new = np.setdiff1d(orders[:, depth : depth + 20], list(seen))
        seen |= dict(zip(new.tolist(), blend.log_odds(scores[:, new], new), strict=True))
        best = sorted(seen, key=lambda label: (-seen[label], label))[:k]
        last = orders[:, min(depth + 19, scores.shape[1] - 1)]
        if len(best) == k and seen[best[-1]] > blend.bound(scores[[0, 1], last]):
            break
    return np.array(best), len(seen)


# ---- all of it ----


def measure(ranked: np.ndarray, truth: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """Return P@1 and P@5, and for each band of rarity the share of its labels in the top 10."""
    hits = np.take_along_axis(truth, ranked, axis=1)
    found = {"P@1": hits[:, 0].mean(), "P@5": hits[:, :5].mean()}
    for name, (least, most) in BANDS.items():
        is_in = (counts >= least) & (counts <= most)
        found[f"R@10 ({name})"] = (hits * is_in[ranked]).sum() / truth[:, is_in].sum()
    return {name: 100 * float(value) for name, value in found.items()}


def main(folder: Path) -> dict[str, dict[str, float]]:
    """Train on a corpus, and return the figures of each scorer on its test split."""
    labels = read_lines(folder / "lbl.json.gz")
    names = [[label["title"], *label["alt"]] for label in labels]
    paths = [folder / f"{name}.json.gz" for name in ("trn", "dev", "tst")]
    train, dev, test = (read_split(path, len(names)) for path in paths)
    counts = train.truth.sum(axis=0).astype(int)
    svms = fit_svms(train, np.random.default_rng(0))
    finder = fit_names(names, train)
    of_dev, of_test = (np.stack([svms.scores(x.texts), finder.scores(x)]) for x in (dev, test))
    blend = fit_blend(of_dev, dev.truth, counts)
    tops = [top_k(blend, of_test[:, row], 10) for row in range(len(test.texts))]
    blended = blend.log_odds(of_test, np.broadcast_to(np.arange(len(names)), of_test.shape[1:]))
    rankings = {
        "sparse": np.argsort(-of_test[0], axis=1, kind="stable")[:, :10],
        "names": np.argsort(-of_test[1], axis=1, kind="stable")[:, :10],
        "blend": np.stack([labels for labels, _ in tops]),
    }
    every = np.argsort(-blended, axis=1, kind="stable")[:, :10]
    figures = {name: measure(ranked, test.truth, counts) for name, ranked in rankings.items()}
    figures["blend"]["labels scored"] = float(np.mean([number for _, number in tops]))
    is_same = (every == rankings["blend"]).all(axis=1)
    figures["blend"]["same as a scan of all"] = float(is_same.mean())
    return figures


if __name__ == "__main__":
    for scorer, row in main(Path(sys.argv[1])).items():
        print(scorer, ", ".join(f"{name} {value:.2f}" for name, value in row.items()))
