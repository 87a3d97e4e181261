"""Runs whose encoder is not fine-tuned: its vectors of documents and label names are compared."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from longtail.ext.learn.learn import LearningRun, learn
from longtail.models.edit.add_labels import add_labels
from longtail.models.kinds.storage import read_parts
from longtail.models.labels.catalogue import Label
from longtail.models.labels.filters import LabelFilter
from longtail.models.memory.vectors import ByteVectors, VectorMemory
from longtail.models.names import DENSE_NEIGHBOURS, LINEAR, RETRIEVAL
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.data.feedback import read_feedback
from longtail.training.data.held_out import held_out_rows

TEXTS = ("a river of fish and the law", "steel trade")


@pytest.fixture(scope="module")
def content(tiny_content, sentence_encoder):
    kept = ("seed", "document_max_tokens", "precision", "descriptions")
    scorers = (RETRIEVAL, DENSE_NEIGHBOURS, "sparse", "names", "neighbours", "fast", "ensemble")
    found = {name: tiny_content[name] for name in kept}
    return found | {"encoder": str(sentence_encoder), "scorers": scorers}


@pytest.fixture(scope="module")
def trained(train_in, content, tiny_corpus, tmp_path_factory):
    config = TrainingConfig.model_validate(content)
    return train_in(tmp_path_factory.mktemp("run"), config, tiny_corpus)


@pytest.fixture(scope="module")
def parts(trained):
    return read_parts(trained.bundle)


@pytest.fixture(scope="module")
def predictor(trained):
    return Predictor.of_bundle(trained.bundle, device="cpu")


def train_texts(corpus: Path) -> list[str]:
    return list(open_dataset(corpus).split("train").texts())


def test_the_bundle_says_that_its_encoder_was_not_tuned(trained, parts):
    manifest = trained.bundle.manifest
    assert not manifest.encoder.is_tuned and not parts.dense.is_tuned
    assert {RETRIEVAL, DENSE_NEIGHBOURS} < set(manifest.scorers)
    assert {"classifier", "hybrid", "linear"}.isdisjoint(manifest.scorers)
    assert {DENSE_NEIGHBOURS, RETRIEVAL} <= manifest.calibrations.keys()


def test_all_documents_with_labels_are_remembered_by_their_vectors(parts, predictor, tiny_corpus):
    documents = list(open_dataset(tiny_corpus).split("train"))
    memory = parts.models[DENSE_NEIGHBOURS]
    assert memory.ids == tuple(each.id for each in documents if each.labels)
    carried = [tuple(memory.labels[[row]].indices.tolist()) for row in range(len(memory.ids))]
    assert carried == [tuple(sorted(each.labels)) for each in documents if each.labels]
    vectors = predictor.read([each.text for each in documents if each.labels]).vectors
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    stored = memory.vectors.bytes * memory.vectors.scales[:, None]
    np.testing.assert_allclose(stored, units, atol=0.01, rtol=0)


def test_the_nearest_documents_are_the_evidence(predictor, parts):
    options = RankingOptions(k=3, scorer=DENSE_NEIGHBOURS)
    batch, memory = predictor.read(TEXTS), parts.models[DENSE_NEIGHBOURS]
    best = predictor.rank(batch, options).labels
    nearest = memory.vectors.nearest(
        ByteVectors.rounded(predictor.read(TEXTS).vectors), memory.num_neighbours
    )
    told = predictor.explain(batch, best[:, :1].tolist(), options)
    for text in range(len(TEXTS)):
        near = {memory.ids[row] for row in nearest.documents[text] if row != NO_LABEL}
        found = {each.id for each in told[text][0].documents}
        assert found and found <= near


def test_label_names_without_keywords_are_compared(parts, predictor):
    labels = [replace(label, pseudo_description="") for label in parts.catalogue]
    names = predictor.read([label.name for label in labels[:5]]).vectors
    np.testing.assert_allclose(parts.dense.label_vectors[:5], names, atol=1e-4, rtol=0)
    assert any(label.pseudo_description != label.name for label in parts.catalogue)


def test_a_blend_with_listed_scores_ranks_as_all_labels_scored_one_by_one(predictor, parts):
    num_labels = len(parts.catalogue)
    batch = predictor.read(TEXTS)
    for scorer in (RETRIEVAL, DENSE_NEIGHBOURS, "ensemble"):
        options = RankingOptions(k=10, scorer=scorer)
        ranked = predictor.rank(batch, options)
        labels = np.tile(np.arange(num_labels, dtype=np.int64), (len(TEXTS), 1))
        scores = predictor.score(batch, labels, options)
        order = np.lexsort((labels, -scores), axis=1)[:, :10]
        best = np.take_along_axis(scores, order, axis=1)
        np.testing.assert_array_equal(ranked.scores, best)
        np.testing.assert_array_equal(ranked.labels, np.where(np.isneginf(best), NO_LABEL, order))


@pytest.mark.parametrize("dial", [0.0, 2.0])
def test_a_filter_leaves_the_best_of_all_selected_labels_not_of_those_that_a_blend_takes(
    trained, parts, monkeypatch, dial
):
    monkeypatch.setattr("longtail.models.kinds.vectors.NUM_LISTED", 3)
    predictor = Predictor.of_bundle(trained.bundle, device="cpu")
    scores = predictor.read(TEXTS).vectors @ parts.dense.label_vectors.T
    scores = scores * float(parts.dense.encoder.log_scale.detach().exp())
    scores += float(parts.dense.encoder.score_bias.detach()) - dial * parts.catalogue.log_priors
    chosen = np.arange(0, len(parts.catalogue), 2)
    some = LabelFilter(include=tuple(parts.catalogue[int(label)].id for label in chosen))
    found = predictor.predict(
        TEXTS, k=len(chosen), scorer=RETRIEVAL, tail_dial=dial, label_filter=some
    )
    for row, prediction in enumerate(found):
        order = chosen[np.argsort(-scores[row, chosen], kind="stable")]
        assert [label.index for label in prediction.labels] == order.tolist()
        got = [label.score for label in prediction.labels]
        np.testing.assert_allclose(got, scores[row, order], rtol=1e-4, atol=1e-4)


def test_a_blend_takes_the_nearest_labels_alone(trained, parts, monkeypatch):
    monkeypatch.setattr("longtail.models.kinds.vectors.NUM_LISTED", 3)
    predictor = Predictor.of_bundle(trained.bundle, device="cpu")
    batch, options = predictor.read(TEXTS), RankingOptions(k=3, scorer=RETRIEVAL)
    nearest = predictor.rank(batch, options).labels
    labels = np.tile(np.arange(len(parts.catalogue), dtype=np.int64), (len(TEXTS), 1))
    taken = ~np.isneginf(predictor.scorers.score_by_all(batch, labels)[RETRIEVAL])
    assert [np.flatnonzero(row).tolist() for row in taken] == np.sort(nearest).tolist()


def units_of(memory: VectorMemory) -> np.ndarray:
    return memory.vectors.bytes * memory.vectors.scales[:, None]


def assert_are_vectors_of(texts: list[str], stored: np.ndarray, predictor: Predictor) -> None:
    """Assert that no vector is that of another text; vectors of two texts differ by over 0.1."""
    vectors = predictor.read(texts).vectors
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(stored, units, atol=0.01, rtol=0)


def test_held_out_documents_join_the_memory_with_their_own_vectors(
    train_in, content, tiny_corpus, tmp_path
):
    """Though every id is that of two documents."""
    corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    (corpus / "dev.jsonl").unlink()
    lines = [json.loads(x) for x in (corpus / "train.jsonl").read_text().splitlines()]
    lines = [{"id": f"d{row // 2}", **line} for row, line in enumerate(lines) if line["labels"]]
    (corpus / "train.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    config = TrainingConfig.model_validate(content | {"held_out_dev": 0.4})
    found = train_in(tmp_path / "run", config, corpus)
    memory = read_parts(found.bundle).models[DENSE_NEIGHBOURS]
    documents = list(open_dataset(corpus).split("train"))
    is_held_out = held_out_rows([each.text for each in documents], 0.4)
    order = [documents[row] for row in np.argsort(is_held_out, kind="stable").tolist()]
    assert 20 <= np.count_nonzero(is_held_out) == found.bundle.manifest.held_out_documents
    assert memory.ids == tuple(each.id for each in order)
    carried = [tuple(memory.labels[[row]].indices.tolist()) for row in range(len(order))]
    assert carried == [each.labels for each in order]
    predictor = Predictor.of_bundle(found.bundle, device="cpu")
    assert_are_vectors_of([each.text for each in order], units_of(memory), predictor)


@pytest.mark.parametrize("line", [1, 17])
def test_a_new_text_with_the_id_of_another_document_has_its_own_vector(
    trained, tiny_corpus, write_feedback, tmp_path, line
):
    """Documents of a corpus without ids are called by the numbers of their lines."""
    dataset, text = open_dataset(tiny_corpus), "Rules on the trade in zebra hides"
    entry = {"text": text, "document_id": str(line), "added": [dataset.labels[0].id]}
    registry = type(trained.registry)(shutil.copytree(trained.registry.folder, tmp_path / "own"))
    said = read_feedback(write_feedback(entry))
    done = learn(LearningRun(said, dataset, registry, "current", tmp_path / "work"))
    bundle = registry.open(done.version)
    memory = read_parts(bundle).models[DENSE_NEIGHBOURS]
    rows = np.flatnonzero(np.array(memory.ids) == str(line))
    document = list(dataset.split("train"))[line - 1]
    predictor = Predictor.of_bundle(bundle, device="cpu")
    assert_are_vectors_of([document.text, text], units_of(memory)[rows], predictor)
    assert memory.labels[[int(rows[1])]].indices.tolist() == [0]


def test_corrected_and_new_documents_join_the_memory(
    trained, tiny_corpus, write_feedback, tmp_path
):
    dataset = open_dataset(tiny_corpus)
    ids = [label.id for label in dataset.labels]
    first = next(each for each in dataset.split("train") if each.labels)
    said = write_feedback(
        {"text": "Rules on the trade in zebra hides", "added": [ids[first.labels[0]]]},
        {"text": first.text, "rejected": [ids[first.labels[0]]], "added": [ids[-1]]},
    )
    shutil.copytree(trained.registry.folder, tmp_path / "registry")
    registry = type(trained.registry)(tmp_path / "registry")
    feedback = read_feedback(said)
    done = learn(LearningRun(feedback, dataset, registry, "current", tmp_path / "work", True))
    bundles = [registry.open(version) for version in (trained.version, done.version)]
    before, after = (read_parts(each).models[DENSE_NEIGHBOURS] for each in bundles)
    assert len(after.ids) == len(before.ids) + 1
    np.testing.assert_array_equal(after.vectors.bytes[:-1], before.vectors.bytes)
    row = before.ids.index(first.id)
    assert len(ids) - 1 in after.labels[[row]].indices
    assert first.labels[0] not in after.labels[[row]].indices
    assert bundles[0].manifest.encoder == bundles[1].manifest.encoder
    assert LINEAR not in bundles[1].manifest.scorers


def test_an_added_label_is_found_by_its_name(trained, parts, tmp_path):
    label = Label("new", "zebra hides of a river")
    add_labels(trained.bundle, [label])(tmp_path / "bundle")
    from longtail.models.bundle.bundle import open_bundle

    bundle = open_bundle(tmp_path / "bundle")
    found = Predictor.of_bundle(bundle, device="cpu")
    ranked = found.rank(found.read([label.name]), RankingOptions(k=1, scorer=RETRIEVAL))
    assert ranked.labels[0, 0] == len(parts.catalogue)


def test_confidential_documents_leave_a_linear_scorer_in_the_place_of_the_memory(
    train_in, content, tiny_corpus, tmp_path
):
    given = {name: value for name, value in content.items() if name != "scorers"}
    given |= {"confidential": True, "descriptions": {"max_tokens": 12}}
    names = TrainingConfig.model_validate(given).scorers
    assert {LINEAR, RETRIEVAL} < set(names)
    assert {DENSE_NEIGHBOURS, "neighbours", "word_neighbours"}.isdisjoint(names)
    config = TrainingConfig.model_validate(given | {"scorers": names})  # named, so all stay
    found = train_in(tmp_path / "run", config, tiny_corpus)
    assert {*found.bundle.manifest.scorers} == {*names}
    parts = read_parts(found.bundle)
    vectors = Predictor(parts, device="cpu").read(train_texts(tiny_corpus)).vectors
    truth = open_dataset(tiny_corpus).split("train").scan().labels.toarray()
    linear = parts.models[LINEAR].model
    ridge = Ridge(alpha=10.0 * vectors.shape[1]).fit(
        vectors.astype(np.float64), truth[:, linear.labels]
    )
    np.testing.assert_allclose(linear.weight, ridge.coef_, atol=1e-5, rtol=0)
    np.testing.assert_allclose(linear.bias, ridge.intercept_, atol=1e-4, rtol=0)


def test_a_run_that_was_stopped_reads_no_document_twice(
    train_in, content, tiny_corpus, tmp_path, monkeypatch
):
    config = TrainingConfig.model_validate(content)
    first = train_in(tmp_path, config, tiny_corpus)
    monkeypatch.setattr("longtail.training.neural.document_vectors.encode_all", None)
    assert train_in(tmp_path, config, tiny_corpus).version == first.version


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scorers": ["retrieval", "classifier", "sparse"]}, "classifier.epochs and retrieval"),
        ({"scorers": ["dense_neighbours", "sparse"]}, "'dense_neighbours' without 'retrieval'"),
    ],
)
def test_what_does_not_go_together_is_refused(content, changed, said):
    with pytest.raises(ValueError, match=said):
        TrainingConfig.model_validate(content | changed)
