"""The dev split at the end of a run: encoded once, and measured as an evaluation measures it."""

from dataclasses import replace

import pytest

from longtail.models.fitted.label_figures import LABEL_FIGURES
from longtail.models.fitted.registry import fitted_texts
from longtail.models.kinds.registry import KINDS, without_encoder
from longtail.models.kinds.storage import read_parts
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.assess import assess
from longtail.training.assessment.per_label import measure_labels
from longtail.training.assessment.promised import answer_split
from longtail.training.data.dataset import open_dataset
from longtail.training.fitted.registry import FITTINGS, with_fitted
from longtail.training.pipeline import dev_split as module
from longtail.training.pipeline.dev_split import DevSplit

BLENDS = {"ensemble": tuple(KINDS), "fast": without_encoder()}


@pytest.fixture
def encoded(monkeypatch):
    """How many texts were encoded at a time."""
    found: list[int] = []
    encode = TextBatch._vectors

    def counted(batch):
        found.append(len(batch.texts))
        return encode(batch)

    monkeypatch.setattr(TextBatch, "_vectors", counted)
    return found


@pytest.fixture
def rank_dev(trained, tiny_corpus, tmp_path):
    parts = replace(read_parts(trained.bundle), calibrations={}, blends={})
    split = open_dataset(tiny_corpus).split("dev")
    return lambda: DevSplit(split, parts, 60, tmp_path)


def test_every_text_is_encoded_once(rank_dev, encoded):
    dev = rank_dev()
    dev.metrics(dev.blending(BLENDS))
    assert encoded == [20]


def test_every_scorer_ranks_once_and_the_blends_last(rank_dev, monkeypatch):
    ranked: list[tuple[str, str | None]] = []
    rank = Predictor.rank

    def counted(self, batch, options):
        ranked.append((options.scorer, options.correction))
        return rank(self, batch, options)

    monkeypatch.setattr(Predictor, "rank", counted)
    dev = rank_dev()
    dev.metrics(dev.blending(BLENDS))
    assert len(ranked) == len(set(ranked))
    assert {name for name, _ in ranked} == {*dev.predictor.scorers.names, "ensemble", "fast"}
    assert {name for name, _ in ranked[-2:]} == {"ensemble", "fast"}


def test_metrics_and_blending_are_those_of_the_bundle_and_of_an_evaluation(
    rank_dev, trained, tiny_corpus, tmp_path
):
    manifest, dev = trained.bundle.manifest, rank_dev()
    blending = dev.blending(BLENDS)
    assert (blending.calibrations, blending.blends) == (manifest.calibrations, manifest.blends)
    assert manifest.thresholds == blending.thresholds
    assert set(manifest.thresholds) == set(manifest.scorers)
    parts = read_parts(trained.bundle)
    bare = replace(parts, fitted={})
    for _ in range(2):  # fitted, then read
        fitted = with_fitted(bare, dev, blending, manifest.default_scorer, tmp_path)
        assert fitted_texts(fitted) == fitted_texts(parts)
    assert {"label_counts.json", "label_figures.json"} <= fitted_texts(fitted).keys()
    without = replace(blending, thresholds={})
    assert FITTINGS[LABEL_FIGURES.name].fit(dev, without, "sparse") is None
    answers = answer_split(
        trained.bundle, open_dataset(tiny_corpus), "dev", manifest.default_scorer
    )
    threshold = manifest.thresholds[manifest.default_scorer]
    assert measure_labels(answers, threshold).to_json() == LABEL_FIGURES.of(parts).to_json()
    metrics = dev.metrics(blending)
    assert metrics == manifest.metrics["dev"]
    predictor = Predictor(parts)
    measured = assess(predictor, open_dataset(tiny_corpus), "dev", num_training_documents=60)
    for name, subsets in measured.evaluation.scorers.items():
        for subset, found in subsets.items():
            assert name not in metrics or metrics[name][subset] == dict(found.values)


def test_a_blending_that_is_kept_is_measured_by_one_pass(rank_dev, encoded, monkeypatch):
    first = rank_dev().blending(BLENDS)
    encoded.clear()
    monkeypatch.setattr(module, "fit_blending", lambda *_: pytest.fail("fitted again"))
    again = rank_dev()
    assert again.blending(BLENDS) == first
    again.metrics(first)
    assert encoded == [20]
