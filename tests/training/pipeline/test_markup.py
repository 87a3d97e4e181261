"""A corpus of texts with HTML: no tag and no reference is a feature, in training or in service."""

import logging

import numpy as np
import pytest

from longtail.models.kinds.storage import read_parts
from longtail.models.names import NAMES
from longtail.models.predict.predictor import Predictor
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.data.documents import TrainingDocuments
from longtail.training.pipeline import encoder_free
from tests.conftest import write_lines

WORDS = ("Gießkanne", "Rucksack", "Lampe", "Stuhl")
MARKED = "<p>Diese <b>{}</b> ist &quot;gut&quot;</p><ul><li>{} &amp; mehr</li></ul>"
PLAIN = "Diese {} ist gut\n{} und mehr"


def documents(form, number, *, first=0):
    for row in range(first, first + number):
        word = WORDS[row % len(WORDS)]
        written = word.replace("ß", "&szlig;") if "<" in form else word
        more = " ".join(f"wort{each}" for each in np.random.default_rng(row).integers(30, size=5))
        text = f"{form.format(written, written)} {more}"
        yield {"text": text, "labels": [f"{row % len(WORDS)}"]}


@pytest.fixture(scope="module")
def train_on(tmp_path_factory, train_in):
    def train(train_texts, **settings):
        folder = tmp_path_factory.mktemp("marked")
        corpus = folder / "corpus"
        corpus.mkdir()
        labels = [{"id": f"{row}", "name": word} for row, word in enumerate(WORDS)]
        write_lines(corpus / "labels.jsonl", labels)
        write_lines(corpus / "train.jsonl", train_texts)
        write_lines(corpus / "dev.jsonl", documents(MARKED, 40, first=1000))
        config = {"scorers": ["sparse", "names", "neighbours"], **settings}
        return train_in(folder, TrainingConfig.model_validate(config), corpus).bundle

    return train


@pytest.fixture(scope="module")
def marked(train_on):
    return train_on(documents(MARKED, 200))


def test_tags_and_references_are_no_features_and_the_manifest_says_so(marked):
    assert marked.manifest.training["remove_markup"] is True
    parts = read_parts(marked)
    assert not {"quot", "li", "amp", "szlig", "gie", "ul"} & set(parts.sparse.tfidf.tokens)
    assert "gießkanne" in parts.sparse.tfidf.tokens
    assert parts.models[NAMES].removes_markup


@pytest.mark.parametrize("scorer", ["sparse", "names", "neighbours"])
def test_a_text_has_the_same_answer_with_and_without_html(marked, scorer):
    texts = ["<p>Gie&szlig;<b>kanne</b>", "\nGießkanne"]
    first, second = Predictor.of_bundle(marked, device="cpu").predict(texts, scorer=scorer, k=2)
    assert first.labels[0].name == "Gießkanne"
    assert first == second


def test_explanations_point_into_the_text_that_was_sent(marked):
    text = "<p>Eine Gie&szlig;<b>kanne</b>"
    predictor = Predictor.of_bundle(marked, device="cpu")
    (found,) = predictor.predict([text], scorer="sparse", k=1, explain=True)
    spans = {part.token: part.spans for part in found.labels[0].explanation.tokens.tokens}
    ((start, stop),) = spans["gießkanne"]
    assert text[start:stop] == "Gie&szlig;<b>kanne"


@pytest.mark.parametrize(
    ("texts", "settings", "is_removed"),
    [
        ([*documents(PLAIN, 300), *documents(MARKED, 2)], {}, False),
        ([*documents(PLAIN, 200)], {"remove_markup": True}, True),
        ([*documents(MARKED, 200)], {"remove_markup": False}, False),
    ],
)
def test_it_is_on_where_enough_texts_have_html_or_as_it_is_set(
    train_on, texts, settings, is_removed
):
    bundle = train_on(texts, **settings)
    assert bundle.manifest.training["remove_markup"] is is_removed
    tfidf = read_parts(bundle).sparse.tfidf
    assert tfidf.removes_markup is is_removed
    assert bool({"quot", "szlig"} & set(tfidf.tokens)) is not is_removed


def test_inflected_words_of_the_language_of_the_texts_find_the_names(train_on, caplog):
    bundle = train_on(documents(PLAIN, 200))
    assert "languages of the training documents: German 100%" in caplog.text
    assert bundle.manifest.training["languages"] == ["de"]
    predictor = Predictor.of_bundle(bundle, device="cpu")
    texts = ["Alte Gießkannen", "zwei RUCKSAECKEN", "Stühle", "Lampen"]
    for scorer in ("sparse", "names"):
        found = predictor.predict(texts, scorer=scorer, k=1)
        assert [each.labels[0].name for each in found] == [
            "Gießkanne",
            "Rucksack",
            "Stuhl",
            "Lampe",
        ]
        assert [predictor.predict([x], scorer=scorer, k=1)[0] for x in texts] == found


def test_folds_of_one_process_warn_of_html_once(caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(encoder_free, "_with_markup", set(), raising=False)
    caplog.set_level(logging.INFO, encoder_free.__name__)
    write_lines(tmp_path / "train.jsonl", documents(MARKED, 8))
    read = TrainingDocuments.read(open_dataset(tmp_path))
    for _ in range(3):
        assert encoder_free.with_texts_decided(TrainingConfig(), read).remove_markup
    levels = [record.levelno for record in caplog.records if "have HTML" in record.message]
    assert levels == [logging.WARNING, logging.INFO, logging.INFO]
