"""The part of a model that a learned version is calibrated on."""

from __future__ import annotations

import numpy as np
import pytest

from longtail.models.bundle.bundle import open_bundle
from longtail.models.edit.add_labels import add_labels
from longtail.models.labels.catalogue import Label
from longtail.models.options import RankingOptions
from longtail.models.parts.storage import read_parts
from longtail.models.predict.predictor import Predictor
from longtail.training.data.dataset import open_dataset
from longtail.training.updating.dev_corpus import corpus_part

NEW = (Label("N1", "zebra hides", training_count=0), Label("N2", "grain tax"))


@pytest.mark.parametrize("tail_dial", [0.0, 0.7])
def test_labels_of_the_corpus_score_as_in_the_whole_model(
    trained, tiny_corpus, tmp_path, tail_dial
):
    """To the bit, by all scorers that don't compare the names found; priors are the whole's."""
    corpus = open_dataset(tiny_corpus)
    num_labels = len(corpus.labels)
    add_labels(trained.bundle, NEW)(tmp_path / "added")
    parts = read_parts(open_bundle(tmp_path / "added"))
    whole, part = (Predictor(x, device="cpu") for x in (parts, corpus_part(parts, corpus)))
    assert len(whole.catalogue) == num_labels + 2 and len(part.catalogue) == num_labels
    np.testing.assert_array_equal(part.catalogue.log_priors, whole.catalogue.log_priors[:-2])
    texts = list(corpus.split("dev").texts())[:5]
    labels = np.tile(np.arange(num_labels), (len(texts), 1))
    scorers = {"retrieval", "classifier", "linear", "sparse", "neighbours"} & {*whole.scorers}
    assert len(scorers) >= 4
    for scorer in scorers:
        options = RankingOptions(scorer=scorer, tail_dial=tail_dial)
        found, wanted = (each.score(each.read(texts), labels, options) for each in (part, whole))
        assert found.tobytes() == wanted.tobytes(), scorer


def test_names_are_those_of_the_corpus(trained, tiny_corpus, tmp_path):
    add_labels(trained.bundle, NEW)(tmp_path / "added")
    parts = read_parts(open_bundle(tmp_path / "added"))
    assert parts.names is not None
    part = Predictor(corpus_part(parts, open_dataset(tiny_corpus)), device="cpu")
    (found,) = part.predict(["the trade in zebra hides"], scorer="names", k=3)
    assert not {label.id for label in found.labels} & {"N1", "N2"}
    assert part.explain(part.read(["a text"]), [[0]], RankingOptions(scorer="names"))
