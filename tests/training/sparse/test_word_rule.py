"""Which words may become features."""

import numpy as np

from longtail.training.configuration.sections import SparseConfig
from longtail.training.sparse.tfidf import fit_tfidf
from longtail.training.sparse.word_rule import WordRule, read_excluded_words

LOOSE = SparseConfig(min_document_count=1, max_document_share=1.0)


def tokens(texts: list[str], rule: WordRule, **config: object) -> set[str]:
    return set(fit_tfidf(texts, LOOSE.model_copy(update=config), rule)[0].tokens)


def test_a_word_needs_different_documents_in_each_way_to_group_them():
    texts = ["one two", "one two", "one three", "one three", "one four"]
    groups = (np.array([0, 0, 1, 1, 2]), np.array([0, 1, 2, 2, 2]))
    assert tokens(texts, WordRule(least=2, groups=groups)) == {"one"}
    assert tokens(texts, WordRule(least=2, groups=groups[:1])) == {"one"}
    assert tokens(texts, WordRule(least=1, groups=groups)) == {"one", "two", "three", "four"}


def test_a_listed_word_is_no_feature_whatever_its_case_and_accents(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\ufeffM\u00dcLLER, Anna\n\u738b\u5c0f\u660e\u660e\n", encoding="utf-8")
    rule = WordRule(read_excluded_words(path))
    texts = ["Muller m\u00fcller anna M\u00fcllerin", "anna annas"]
    assert tokens(texts, rule, max_ngram=2) == {"m\u00fcllerin", "annas"}
    chinese = tokens(["\u738b\u5c0f\u660e\u660e\u4f86"], rule, analyzer="char")
    assert "\u4f86" in chinese and not {"\u738b\u5c0f\u660e", "\u5c0f\u660e\u660e"} & chinese
