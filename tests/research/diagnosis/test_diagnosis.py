"""The diagnosis of keywords: against naive loops, and as its command writes it."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import longtail.models.parts.dense_storage
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel
from research.commands import app
from research.diagnosis.measure import diagnose
from research.diagnosis.theory import keyword_bound, keyword_weights, normalise, theorem_bound

COUNTS = (2, 5)
DIM = 64


def case_of(seed=0, *, least=-1.0, has_bias=True, num_labels=13, num_features=30):
    """A model of all labels but the last, 25 documents and their labels."""
    rng = np.random.default_rng(seed)
    covered = num_labels - 1
    weights = rng.uniform(least, 1, (covered, num_features)) * (
        rng.random((covered, num_features)) < 0.6
    )
    bias = rng.uniform(-1, 0, covered) * has_bias
    model = SparseModel.of_rows(
        TfidfModel([f"word{x}" for x in range(num_features)], np.ones(num_features, np.float32)),
        csr_array(weights.astype(np.float32)),
        bias.astype(np.float32),
        np.arange(covered),
    )
    features = rng.random((25, num_features)) * (rng.random((25, num_features)) < 0.5)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    truth = rng.random((25, num_labels)) < 0.2
    return model, csr_array(features.astype(np.float32)), csr_array(truth.astype(np.float32))


def naive(model, features, truth, count):
    """What each label's documents say, one pair at a time; a list of tuples by label."""
    norm, keywords = normalise(model), keyword_weights(model.weights, count).toarray()
    weights, found = model.weights.toarray().astype(float), {}
    for x, labels in zip(features.toarray().astype(float), truth.toarray()[:, :-1], strict=True):
        scores = weights @ x + model.bias
        for p in np.flatnonzero(labels):
            lower = [n for n in range(len(scores)) if not labels[n] and scores[n] < scores[p]]
            if not lower:
                continue
            is_keyword = keywords[p] > 0
            shifted = (weights[p] + norm.shift) * x
            delta = (shifted.sum() + norm.bias[p] - shifted[is_keyword].sum()) / norm.scale
            epsilon = min(scores[p] - scores[n] for n in lower) / norm.scale
            evidence = np.maximum(weights[p], 0) @ x
            missed = 1 - keywords[p] @ x / evidence if evidence else np.nan
            margins = [x @ (keywords[p] - keywords[n]) for n in lower]
            lengths = [np.linalg.norm(keywords[p] - keywords[n]) for n in lower]
            cosines = np.array([m / length for m, length in zip(margins, lengths, strict=True)])
            errors = min(1, keyword_bound(cosines, DIM).sum())
            row = (delta, epsilon, len(lower), missed, min(margins) > 0, errors)
            found.setdefault(int(p), []).append(row)
    return {label: np.array(rows, dtype=float).T for label, rows in sorted(found.items())}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("place", "count"), list(enumerate(COUNTS)))
def test_what_is_measured_is_what_naive_loops_find(seed, place, count):
    case = case_of(seed)
    found, expected = diagnose(*case, dim=DIM, keyword_counts=COUNTS), naive(*case, count)
    each = found.findings[place]
    means = np.array([np.nanmean(rows, axis=1) for rows in expected.values()]).T
    assert found.labels.tolist() == list(expected) and each.count == count
    assert each.delta_max == pytest.approx(np.array([x[0].max() for x in expected.values()]))
    got = np.array([each.delta_mean, each.missed, each.kept, each.sharp_bound])
    assert got == pytest.approx(means[[0, 3, 4, 5]], abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_margins_and_bounds_are_what_naive_loops_find(seed):
    case = case_of(seed)
    found, expected = diagnose(*case, dim=DIM, keyword_counts=COUNTS), naive(*case, 2).values()
    assert found.epsilon_min == pytest.approx(np.array([x[1].min() for x in expected]), abs=1e-6)
    low = np.array([np.quantile(x[1], 0.1) for x in expected])
    assert found.epsilon_low == pytest.approx(low, abs=1e-6)
    assert found.num_negatives.tolist() == [x[2].max() for x in expected]
    delta, epsilon = found.findings[0].delta_max, found.epsilon_min
    expected_bound = theorem_bound(epsilon, delta, found.num_negatives, DIM)
    assert (found.findings[0].bound == expected_bound).all()


@pytest.fixture
def call(trained, tiny_corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = [str(tiny_corpus), "--registry", str(trained.registry.folder), "--output", "out"]
    return lambda *options: CliRunner().invoke(
        app, ["diagnose", *places, *options], catch_exceptions=False
    )


@pytest.mark.slow
def test_diagnose_prints_the_table_and_writes_table_numbers_and_a_picture(call, monkeypatch):
    monkeypatch.delattr(longtail.models.parts.dense_storage, "load_encoder")  # it needs no encoder
    result = call()
    assert result.stdout.startswith(Path("out/theory.md").read_text().rstrip())
    assert result.stdout.splitlines()[-1] == "Written: out/theory.png"
    assert Path("out/theory.png").stat().st_size > 20_000
