"""Words of titles as features of their own: where they are fitted, and where not."""

import numpy as np
import pytest

from longtail.models.scorers.tfidf import TITLE
from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse.tfidf import fit_tfidf
from longtail.training.sparse.word_rule import WordRule

TITLES = ["Olive oil", "Olive trees", "Oil prices", "Trees"]
TEXTS = [f"{title}\nA text on {title.lower()} and its trade {i}" for i, title in enumerate(TITLES)]
CONFIG = SparseConfig(max_document_share=1.0)


def test_the_training_rows_are_those_of_the_model_to_the_bit():
    model, rows = fit_tfidf(TEXTS, CONFIG)
    words = {token.removeprefix(TITLE) for token in model.tokens if token.startswith(TITLE)}
    assert words == {"oil", "olive", "trees"}
    assert model.title_weight == CONFIG.title_weight
    assert np.array_equal(rows.toarray(), model.transform(TEXTS).toarray())
    oil = model.tokens.index(f"{TITLE}oil")
    assert model.idf[oil] == pytest.approx(np.log(5 / 3) + 1)  # two titles of four texts


def test_words_that_a_rule_excludes_are_no_words_of_titles():
    model, _ = fit_tfidf(TEXTS, CONFIG, WordRule(excluded=frozenset({"oil"})))
    assert "olive" in model.tokens
    assert not any("oil" in token for token in model.tokens)


@pytest.mark.parametrize(
    ("texts", "config"),
    [
        (TEXTS, CONFIG.model_copy(update={"title_weight": 0.0})),
        ([text.replace("\n", " ") for text in TEXTS], CONFIG),
        ([*TEXTS, *("no title on trade" for _ in range(5))], CONFIG),
        (TEXTS, CONFIG.model_copy(update={"analyzer": "char"})),
        ([f"{i}\n{text}" for i, text in enumerate(TEXTS)], CONFIG),  # titles without a word
    ],
    ids=["weight 0", "one line", "few titles", "characters", "no words"],
)
def test_without_titles_there_are_no_features_of_them(texts, config):
    model, rows = fit_tfidf(texts, config)
    assert model.title_weight is None
    assert not any(token.startswith(TITLE) for token in model.tokens)
    assert "title_weight" not in model.to_json()
    assert np.array_equal(rows.toarray(), model.transform(texts).toarray())


def test_stems_of_titles_are_one_feature():
    texts = ["Bäume im Wald\nDie Bäume stehen", "Baum im Wald\nDer Baum steht"]
    model, rows = fit_tfidf(texts, CONFIG, languages=["de"])
    titled = [token for token in model.tokens if token.startswith(TITLE)]
    assert f"{TITLE}baum" in titled
    assert f"{TITLE}bäume" not in titled
    assert np.array_equal(rows.toarray(), model.transform(texts).toarray())
