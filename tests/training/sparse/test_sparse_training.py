"""Training of the sparse model: tf-idf against scikit-learn, and each label against one SVM."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TITLE
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.sparse import fit as sparse
from longtail.training.sparse.fit import fit_sparse_model
from longtail.training.sparse.svm import SvmProblem
from longtail.training.sparse.tfidf import fit_tfidf
from longtail.training.sparse.word_rule import WordRule, read_excluded_words

CONFIG = SparseConfig()


@dataclass(frozen=True)
class Problem:
    texts: list[str]
    truth: csr_array

    def fit(self, folder: Path, **config: object) -> SparseModel:
        chosen = SparseConfig.model_validate(config)
        tfidf, features = fit_tfidf(self.texts, chosen)
        return fit_sparse_model(tfidf, features, self.truth, chosen, seed=5, folder=folder)


@pytest.fixture(scope="module")
def problem(tiny_corpus):
    """The training documents; the last label is given to all of them."""
    split = open_dataset(tiny_corpus).split("train")
    truth = split.scan().labels.tolil()
    truth[:, -1] = 1
    return Problem(list(split.texts()), csr_array(truth, dtype=np.float32))


def same(first: SparseModel, second: SparseModel) -> bool:
    return (
        (first.weights != second.weights).nnz == 0
        and first.bias.tolist() == second.bias.tolist()
        and first.labels.tolist() == second.labels.tolist()
    )


def test_a_token_must_occur_in_two_documents_and_in_at_most_70_percent():
    num_documents = {"once": 1, "twice": 2, "often": 7, "always": 8}
    texts = [
        " ".join(["filler", *(word for word, count in num_documents.items() if i < count)])
        for i in range(10)
    ]
    tfidf, _ = fit_tfidf(texts, CONFIG)
    assert tfidf.tokens == ("often", "twice")


def test_features_are_those_of_scikit_learn(problem):
    tfidf, features = fit_tfidf(problem.texts, CONFIG.model_copy(update={"title_weight": 0.0}))
    theirs = TfidfVectorizer(min_df=2, max_df=0.7, sublinear_tf=True)
    expected = theirs.fit_transform(problem.texts)
    assert tfidf.tokens == tuple(theirs.get_feature_names_out())
    np.testing.assert_allclose(features.toarray(), expected.toarray(), atol=1e-6)


def test_phrases_are_those_of_scikit_learn(problem):
    config = CONFIG.model_copy(update={"max_ngram": 2, "title_weight": 0.0})
    tfidf, features = fit_tfidf(problem.texts, config)
    theirs = TfidfVectorizer(min_df=2, max_df=0.7, sublinear_tf=True, ngram_range=(1, 2))
    expected = theirs.fit_transform(problem.texts)
    assert tfidf.tokens == tuple(theirs.get_feature_names_out())
    assert any(tfidf.is_phrase(column) for column in range(len(tfidf.tokens)))
    np.testing.assert_allclose(features.toarray(), expected.toarray(), atol=1e-6)


@pytest.mark.parametrize("max_ngram", [1, 2])
def test_features_of_training_are_those_of_scoring_to_the_bit(problem, max_ngram):
    config = CONFIG.model_copy(update={"max_ngram": max_ngram})
    tfidf, features = fit_tfidf(problem.texts, config)
    assert (tfidf.transform(problem.texts) != features).nnz == 0


def test_each_label_has_the_weights_of_a_plain_svm(problem, tmp_path):
    model = problem.fit(tmp_path, cost=0.5, rare_cost=1, prune_below=0.05)
    _, features = fit_tfidf(problem.texts, CONFIG)
    for row in (0, 7, 40):
        own = problem.truth[:, [model.labels[row]]].toarray()[:, 0]
        svm = LinearSVC(C=0.5 if own.sum() >= 10 else 1, tol=1e-6, max_iter=10_000, random_state=5)
        svm.fit(features.toarray(), own)
        found = model.weights[[row]].toarray()[0]
        np.testing.assert_allclose(found, svm.coef_[0], atol=0.06)
        assert model.bias[row] == pytest.approx(svm.intercept_[0], abs=0.02)


def test_labels_without_a_training_document_have_no_row(problem, tmp_path):
    model = problem.fit(tmp_path)
    counts = np.asarray(problem.truth.sum(axis=0))
    assert (counts == 0).any()
    assert model.labels.tolist() == np.flatnonzero(counts).tolist()
    assert model.weights.shape[0] == len(model.bias) == len(model.labels)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 50 labels; returns a list that grows by one with every SVM fitted."""
    fitted: list[int] = []
    fit = SvmProblem.fit

    def counted(problem, labels):
        fitted.extend(labels)
        return fit(problem, labels)

    monkeypatch.setattr(sparse, "_BLOCK_SIZE", 50)
    monkeypatch.setattr(SvmProblem, "fit", counted)
    return fitted


def test_blocks_give_what_one_block_gives(problem, tmp_path, small_blocks, monkeypatch):
    in_blocks = problem.fit(tmp_path / "blocks")
    monkeypatch.setattr(sparse, "_BLOCK_SIZE", 10_000)
    assert same(in_blocks, problem.fit(tmp_path / "one"))


def test_labels_fitted_at_the_same_time_are_to_the_bit_those_fitted_in_turn(
    problem, tmp_path, monkeypatch
):
    monkeypatch.setattr(sparse, "cpu_count", lambda: 1)
    in_turn = problem.fit(tmp_path / "one", exact_documents=0)
    monkeypatch.setattr(sparse, "cpu_count", lambda: 4)
    assert same(in_turn, problem.fit(tmp_path / "four", exact_documents=0))


def test_a_run_started_again_fits_only_the_missing_block(problem, tmp_path, small_blocks):
    whole = problem.fit(tmp_path)
    blocks = sorted(tmp_path.rglob("*.safetensors"))
    blocks[1].unlink()
    small_blocks.clear()
    assert same(problem.fit(tmp_path), whole)
    assert len(small_blocks) == 50
    assert sorted(tmp_path.rglob("*.safetensors")) == blocks


def test_a_run_stopped_within_a_block_goes_on_after_the_one_before(
    problem, tmp_path, small_blocks, monkeypatch
):
    whole = problem.fit(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(sparse, "_save_block", fail_at_call(2, sparse._save_block))
        with pytest.raises(KeyboardInterrupt):
            problem.fit(tmp_path / "stopped")
    small_blocks.clear()
    assert same(problem.fit(tmp_path / "stopped"), whole)
    assert len(small_blocks) == len(whole.labels) - 50


def fail_at_call(number: int, function):
    calls: list[int] = []

    def call(*arguments):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return function(*arguments)

    return call


def test_stems_are_tokens_spelt_as_the_shortest_word_and_read_as_in_training():
    texts = ["die Häuser brannten", "des Hauses Dächer", "ein Haus brannte", "das Dach"]
    tfidf, features = fit_tfidf(texts, SparseConfig(max_document_share=1), languages=["de"])
    assert {"haus", "dach", "brannte"} == set(tfidf.tokens)
    assert (tfidf.transform(texts) != features).nnz == 0


def test_a_form_has_none_of_the_excluded_words():
    texts = ["der Müller mahlt", "die Müllers mahlen"]
    config = SparseConfig(max_document_share=1)
    rule = WordRule(excluded=frozenset({"muller"}), least=1)
    tfidf, _ = fit_tfidf(texts, config.model_copy(update={"min_document_count": 1}), rule,
                         languages=["de"])  # fmt: skip
    assert "müllers" in tfidf.tokens and "müller" not in tfidf.tokens


TITLES = ["Olive oil", "Olive trees", "Oil prices", "Trees"]
TEXTS = [f"{title}\nA text on {title.lower()} and its trade {i}" for i, title in enumerate(TITLES)]
TITLE_CONFIG = SparseConfig(max_document_share=1.0)


def test_the_training_rows_are_those_of_the_model_to_the_bit():
    model, rows = fit_tfidf(TEXTS, TITLE_CONFIG)
    words = {token.removeprefix(TITLE) for token in model.tokens if token.startswith(TITLE)}
    assert words == {"oil", "olive", "trees"}
    assert model.title_weight == TITLE_CONFIG.title_weight
    assert np.array_equal(rows.toarray(), model.transform(TEXTS).toarray())
    oil = model.tokens.index(f"{TITLE}oil")
    assert model.idf[oil] == pytest.approx(np.log(5 / 3) + 1)  # two titles of four texts


def test_words_that_a_rule_excludes_are_no_words_of_titles():
    model, _ = fit_tfidf(TEXTS, TITLE_CONFIG, WordRule(excluded=frozenset({"oil"})))
    assert "olive" in model.tokens
    assert not any("oil" in token for token in model.tokens)


@pytest.mark.parametrize(
    ("texts", "config"),
    [
        (TEXTS, TITLE_CONFIG.model_copy(update={"title_weight": 0.0})),
        ([text.replace("\n", " ") for text in TEXTS], TITLE_CONFIG),
        ([*TEXTS, *("no title on trade" for _ in range(5))], TITLE_CONFIG),
        (TEXTS, TITLE_CONFIG.model_copy(update={"analyzer": "char"})),
        ([f"{i}\n{text}" for i, text in enumerate(TEXTS)], TITLE_CONFIG),  # titles without a word
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
    model, rows = fit_tfidf(texts, TITLE_CONFIG, languages=["de"])
    titled = [token for token in model.tokens if token.startswith(TITLE)]
    assert f"{TITLE}baum" in titled
    assert f"{TITLE}bäume" not in titled
    assert np.array_equal(rows.toarray(), model.transform(texts).toarray())


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
