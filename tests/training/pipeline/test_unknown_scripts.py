"""A language that is not known, whose words carry prefixes, in a script other than Latin."""

import numpy as np
import pytest

from longtail.models.predict.predictor import Predictor
from longtail.training.configuration.run import TrainingConfig
from tests.conftest import write_lines

LETTERS = [chr(each) for each in range(0x0561, 0x0587)]  # Armenian, which no stemmer here is for


def documents(number, seed, *, has_prefixes):
    """Yield texts of a label's own words; each has a prefix of two letters where that is asked."""
    rng = np.random.default_rng(0)
    words = [["".join(rng.choice(LETTERS, 6)) for _ in range(4)] for _ in range(20)]
    rng = np.random.default_rng(seed)
    for label in rng.integers(20, size=number).tolist():
        text = [
            "".join(rng.choice(LETTERS, 2)) * has_prefixes + word
            for word in [*rng.choice(words[label], 2), *rng.choice(words[rng.integers(20)], 1)]
        ]
        yield {"text": " ".join(text), "labels": [f"{label}"]}


@pytest.mark.parametrize(("has_prefixes", "analyzer"), [(True, "char"), (False, "word")])
def test_character_ngrams_are_taken_where_they_rank_dev_better(
    has_prefixes, analyzer, tmp_path, train_in
):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for seed, (name, number) in enumerate({"train": 400, "dev": 150}.items()):
        write_lines(corpus / f"{name}.jsonl", documents(number, seed, has_prefixes=has_prefixes))
    config = TrainingConfig.model_validate({"scorers": ["sparse"]})
    model = Predictor.of_bundle(train_in(tmp_path, config, corpus).bundle, device="cpu")
    assert model.parts.sparse.tfidf.analyzer == analyzer
