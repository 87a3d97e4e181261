"""A model of long notes is asked a short query: the answer says that the text is unlike them."""

import numpy as np
import pytest

from longtail.models.predict.predictor import Predictor
from longtail.training.configuration.run import TrainingConfig
from tests.conftest import write_lines

NUM_WORDS = 300


def notes(number, seed):
    rng = np.random.default_rng(seed)
    for label in rng.integers(10, size=number).tolist():
        words = [f"word{each}" for each in rng.integers(400, size=NUM_WORDS + rng.integers(50))]
        yield {"text": " ".join([*words, *[f"topic{label}"] * 3]), "labels": [f"{label}"]}


@pytest.fixture(scope="module")
def predictor(tmp_path_factory, train_in):
    folder = tmp_path_factory.mktemp("notes")
    corpus = folder / "corpus"
    corpus.mkdir()
    write_lines(corpus / "labels.jsonl", [{"id": f"{i}", "name": f"name {i}"} for i in range(10)])
    for seed, (name, number) in enumerate({"train": 200, "dev": 150}.items()):
        write_lines(corpus / f"{name}.jsonl", notes(number, seed))
    config = TrainingConfig.model_validate({"scorers": ["sparse", "neighbours"]})
    return Predictor.of_bundle(train_in(folder, config, corpus).bundle, device="cpu")


@pytest.mark.parametrize("scorer", ["sparse", "neighbours"])
def test_a_short_query_to_a_model_of_long_notes_is_told(predictor, scorer):
    (found,) = predictor.predict(["topic1 topic2 word3 word4"], scorer=scorer)
    assert [x.code for x in found.warnings] == ["unlike-training"]
    assert "4 known words" in found.warnings[0].detail


def test_a_text_of_few_known_words_is_warned_of_where_documents_give_no_bounds(tmp_path, train_in):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    write_lines(corpus / "train.jsonl", notes(200, 0))  # too few are held out for bounds
    config = TrainingConfig.model_validate({"scorers": ["sparse"]})
    model = Predictor.of_bundle(train_in(tmp_path, config, corpus).bundle, device="cpu")
    few, half = model.predict(["topic1 no such words", "topic1 topic2 no such"], k=1)
    assert [x.code for x in few.warnings] == ["few-known-words"] and not half.warnings
    assert few.labels[0].id == "1" and "1 of its 4 words" in few.warnings[0].detail
