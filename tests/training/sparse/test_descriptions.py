"""Keywords and pseudo descriptions of labels."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.text import keyword_part
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TITLE, TfidfModel
from longtail.training.configuration.run import TrainingConfig
from longtail.training.configuration.sections import DescriptionConfig, SparseConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.sparse.descriptions import keywords_of_labels, pseudo_descriptions
from longtail.training.sparse.fit import fit_sparse_model
from longtail.training.sparse.tfidf import fit_tfidf

TOKENS = ["apple", "bread", "cheese", "dates"]


def model_of(
    weights: list[list[float]], labels: list[int], tokens: list[str] = TOKENS, max_ngram: int = 1
) -> SparseModel:
    return SparseModel.of_rows(
        TfidfModel(tokens, np.ones(len(tokens), dtype=np.float32), (), max_ngram),
        csr_array(np.array(weights, dtype=np.float32)),
        np.zeros(len(labels), dtype=np.float32),
        np.array(labels, dtype=np.int64),
    )


def named(*names: str) -> LabelCatalogue:
    return LabelCatalogue(Label(str(index), name) for index, name in enumerate(names))


def naive_keywords(
    weights: np.ndarray, tokens: list[str], config: DescriptionConfig
) -> tuple[str, ...]:
    """One label's keywords, said once more in the plainest way."""
    best = [t for w, t in sorted(zip(-weights, tokens, strict=True), key=lambda x: x[0]) if w < 0]
    words = [t for t in best if not t.startswith(TITLE)]
    return tuple((words or [t.removeprefix(TITLE) for t in best[:1]])[: config.num_keywords])


@pytest.mark.parametrize("seed", range(8))
def test_keywords_are_those_of_a_naive_loop(seed):
    rng = np.random.default_rng(seed)
    tokens = ["10", "2_0", "and", "bread", "cheese", "der", "dünger", "the", "x2", "zebra"]
    weights = rng.integers(-2, 4, (30, len(tokens))) / 4
    names = [" ".join(rng.choice(tokens, 3)).title() for _ in weights]
    config = DescriptionConfig(num_keywords=int(rng.integers(1, 6)))
    found = keywords_of_labels(model_of(weights, range(30), tokens), named(*names), config)
    assert found == [naive_keywords(row, tokens, config) for row in weights]


def fit(folder, corpus, config):
    dataset = open_dataset(corpus)
    split = dataset.split("train")
    tfidf, features = fit_tfidf(split.texts(), config)
    model = fit_sparse_model(tfidf, features, split.scan().labels, config, seed=0, folder=folder)
    return dataset, model


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, tiny_corpus):
    return fit(tmp_path_factory.mktemp("sparse"), tiny_corpus, SparseConfig())


def test_a_fitted_label_s_keywords_are_those_of_a_naive_loop(fitted):
    dataset, model = fitted
    config = DescriptionConfig(num_keywords=5)
    keywords = keywords_of_labels(model, dataset.catalogue, config)
    weights = model.weights.toarray()
    for row, label in enumerate(model.labels.tolist()):
        assert keywords[label] == naive_keywords(weights[row], model.tfidf.tokens, config)


def described(label: Label, words: tuple[str, ...]) -> str:
    return pseudo_descriptions(LabelCatalogue([label]), [words])[0]


@pytest.mark.parametrize(
    ("description", "words", "expected"),
    [
        ("", ("puzzle", "clue"), "kakuro. puzzle clue"),
        ("A logic puzzle", ("clue",), "kakuro. A logic puzzle. clue"),
        ("", (), "kakuro"),  # the paper's DE-ret
        (" A logic puzzle ", (), "kakuro. A logic puzzle"),
    ],
)
def test_a_pseudo_description_is_name_description_and_keywords(description, words, expected):
    assert described(Label("1", "kakuro", description), words) == expected


@pytest.mark.parametrize("words", [(), ("clue",), ("puzzle", "clue")])
@pytest.mark.parametrize("description", ["", "A puzzle. "])
@pytest.mark.parametrize("name", ["", "kakuro. No"])
def test_the_keywords_of_a_pseudo_description_are_found_in_it(name, description, words):
    text = described(Label("1", name, description), words)
    assert keyword_part(Label("1", name, description, text)) == " ".join(words)


def test_the_options_of_a_run_decide_what_its_bundle_describes(
    train_in, tiny_content, tiny_corpus, tmp_path
):
    options = {"num_keywords": 5}
    content = tiny_content | {"descriptions": {**options, "max_tokens": 12}}
    bundle = train_in(tmp_path, TrainingConfig.model_validate(content), tiny_corpus).bundle
    said = bundle.manifest.training["descriptions"]
    defaults = {"alternative_names": 0, "parents": False}
    assert said == {**options, **defaults, "max_tokens": 12}
    config = DescriptionConfig.model_validate(said)
    keywords = keywords_of_labels(read_sparse(bundle), bundle.catalogue, config)
    assert [keyword_part(x) for x in bundle.catalogue] == [" ".join(words) for words in keywords]
