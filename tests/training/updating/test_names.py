"""Names learn: words of new names are counted, and finds in old documents count as wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.parts.storage import read_parts
from longtail.training.data.dataset import open_dataset
from longtail.training.updating import names as module
from longtail.training.updating.documents import TrainingDocuments, change_documents
from longtail.training.updating.labels import SaidOfText
from longtail.training.updating.names import SampledTexts, update_names


@pytest.fixture
def parts(trained):
    return read_parts(trained.bundle)


@pytest.fixture
def changed(parts):
    """One new document with a new label."""
    new = len(parts.catalogue)
    said = SaidOfText("Regulation on zebra hides", "d", frozenset([new]), frozenset())
    documents = TrainingDocuments.of(parts, None).with_labels(new + 1)
    features = parts.sparse.tfidf.transform([said.text])
    return change_documents(documents, [said], features, has_dev=False)


def test_old_words_keep_their_counts_and_new_ones_get_those_of_the_vocabulary(
    parts, changed, tiny_corpus
):
    tfidf, old = parts.sparse.tfidf, parts.names.counts
    word = next(x for x in tfidf.tokens if x.isalpha() and x not in old.words and x[-1] != "s")
    texts = list(open_dataset(tiny_corpus).split("train").texts())
    in_documents = sum(
        word in tfidf.terms(text) or f"{word}s" in tfidf.terms(text) for text in texts
    )
    new = [Label("new", f"{word} zebra")]
    counts = update_names(parts.names, changed, new, tfidf, None).counts
    before = len(old.words)
    np.testing.assert_array_equal(counts.documents[:before], old.documents)
    found = dict(zip(counts.words[before:], counts.documents[before:].tolist(), strict=True))
    assert abs(found[word] - in_documents) <= 1
    assert found["zebra"] == 1  # of the new document alone


def test_finds_of_new_names_in_old_documents_are_of_no_label(
    parts, changed, tiny_corpus, monkeypatch
):
    corpus = open_dataset(tiny_corpus)
    new = [Label("new", "regulation")]
    blind = update_names(parts.names, changed, new, parts.sparse.tfidf, None).history
    seeing = update_names(parts.names, changed, new, parts.sparse.tfidf, corpus).history
    assert blind.found[-1].sum() == blind.right[-1].sum() == seeing.right[-1].sum() == 1
    texts = list(corpus.split("train").texts())
    named = sum("regulation" in text.lower() for text in texts)
    assert seeing.found[-1].sum() == 1 + named > 10
    np.testing.assert_array_equal(seeing.found[:-1], blind.found[:-1])

    monkeypatch.setattr(module, "_MOST_SAMPLED", 20)
    sampled = SampledTexts.of(corpus, changed)
    assert (len(sampled.texts), sampled.stands_for) == (20, 3)
    assert list(sampled.texts) == texts[::3]


def test_names_of_retired_labels_are_counted_no_more_and_keep_their_places(parts, changed):
    tfidf, model = parts.sparse.tfidf, parts.names
    several = next(i for i, label in enumerate(model.catalogue) if len(label.name.split()) == 2)
    labels = list(model.catalogue)
    labels[several] = replace(labels[several], is_retired=True)
    retired = model.with_catalogue(LabelCatalogue(labels), model.history)
    new = [Label("new", "zebra hides")]
    wanted = update_names(model, changed, new, tfidf, None).counts
    counts = update_names(retired, changed, new, tfidf, None).counts
    np.testing.assert_array_equal(counts.pairs, wanted.pairs)
    np.testing.assert_array_equal(counts.pair_documents, wanted.pair_documents)
