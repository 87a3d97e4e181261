"""The scorer `neighbours` of a model: ranked, explained, stored and extended."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.bundle.bundle import open_bundle
from longtail.models.bundle.manifest import Calibration
from longtail.models.edit.add_labels import add_labels
from longtail.models.errors import BundleCorruptError
from longtail.models.kinds import neighbours
from longtail.models.kinds.neighbours import NeighboursScorer
from longtail.models.kinds.storage import read_parts, write_parts
from longtail.models.labels.catalogue import Label
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.names import NEIGHBOURS
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.scorers.tfidf import TfidfModel
from tests.closeness import assert_all_close

DOCUMENTS = ("river fish", "river law", "steel trade", "steel steel court", "grain milk", "milk")
CARRIED = ((0,), (0, 3), (1, 4), (4,), (6,), (3, 6))
TEXTS = ("a river of fish", "steel and the court", "zebra", "milk")
NUM_LABELS = 7
OPTIONS = RankingOptions(NUM_LABELS, "neighbours")


@pytest.fixture(scope="session")
def memory(parts):
    truth = np.zeros((len(DOCUMENTS), NUM_LABELS), dtype=np.float32)
    for row, labels in enumerate(CARRIED):
        truth[row, list(labels)] = 1
    return NeighbourMemory.of_documents(
        parts.sparse.tfidf.transform(DOCUMENTS),
        csr_array(truth),
        [f"doc-{row}" for row in range(len(DOCUMENTS))],
        num_neighbours=3,
        temperature=0.2,
    )


@pytest.fixture(params=[True, False], ids=["with an encoder", "without"])
def remembering(parts, memory, request):
    dense = parts.dense if request.param else None
    return replace(parts, dense=dense, models={**parts.models, NEIGHBOURS: memory})


@pytest.fixture
def predictor(remembering):
    return Predictor(remembering, device="cpu")


@pytest.fixture
def stored(sparse_parts, sparse_manifest, memory, tmp_path):
    """A bundle of the sparse model and the neighbours."""
    write_parts(
        tmp_path / "stored",
        replace(sparse_parts, models={NEIGHBOURS: memory}),
        replace(sparse_manifest, scorers=("sparse", "neighbours")),
        tmp_path / "scratch",
    )
    return open_bundle(tmp_path / "stored")


def test_labels_of_the_nearest_documents_come_first(predictor):
    assert predictor.scorers.names[-1] == "neighbours"
    batch = predictor.read(TEXTS)
    ranking = predictor.rank(batch, OPTIONS)
    assert ranking.labels[:, 0].tolist() == [0, 4, NO_LABEL, 6]
    assert set(ranking.labels[0].tolist()) == {0, 3, NO_LABEL}
    np.testing.assert_array_equal(predictor.score(batch, ranking.labels, OPTIONS), ranking.scores)
    assert ranking.scores.max() <= 1e-6  # shares are at most 1


def test_neighbours_are_sought_once_a_batch(predictor, monkeypatch):
    calls = []
    search = neighbours.nearest_documents
    monkeypatch.setattr(
        neighbours,
        "nearest_documents",
        lambda *args, **options: calls.append(1) or search(*args, **options),
    )
    batch = predictor.read(TEXTS)
    ranking = predictor.rank(batch, OPTIONS)
    predictor.score(batch, ranking.labels, OPTIONS)
    part = predictor.rank(batch.take([1, 0]), OPTIONS)
    joined = predictor.rank(TextBatch.joined([batch, batch]), OPTIONS)
    assert calls == [1]
    np.testing.assert_array_equal(part.scores, ranking.scores[[1, 0]])
    np.testing.assert_array_equal(joined.labels, np.tile(ranking.labels, (2, 1)))
    alone = predictor.rank(predictor.read([TEXTS[1]]), OPTIONS)
    np.testing.assert_array_equal(alone.scores[0], ranking.scores[1])


@pytest.mark.parametrize("scorer", ["sparse", "neighbours"])
def test_a_text_is_read_once_and_no_matrix_is_made_of_it(sparse_parts, memory, scorer, monkeypatch):
    predictor = Predictor(replace(sparse_parts, models={NEIGHBOURS: memory}), device="cpu")
    options = {"k": 3, "scorer": scorer}
    (wanted,) = predictor.predict(TEXTS[:1], **options)
    read, made = [], []
    of_texts, of_arrays = TfidfModel.read, csr_array.__init__
    monkeypatch.setattr(TfidfModel, "read", lambda *x: read.append(1) or of_texts(*x))
    monkeypatch.setattr(csr_array, "__init__", lambda *x, **y: made.append(1) or of_arrays(*x, **y))
    assert predictor.predict(TEXTS[:1], **options) == [wanted]
    assert (read, made) == ([1], [])


def test_the_tail_dial_subtracts_priors_of_labels_that_have_a_score(predictor):
    batch = predictor.read(TEXTS)
    labels = np.tile(np.arange(NUM_LABELS, dtype=np.int64), (len(TEXTS), 1))
    plain = predictor.score(batch, labels, OPTIONS)
    dialled = predictor.score(batch, labels, replace(OPTIONS, tail_dial=2.0))
    assert_all_close(dialled, plain - 2 * predictor.catalogue.log_priors, rtol=1e-5)


def test_probabilities_are_those_of_its_calibration(predictor):
    line = Calibration((0.0,), (1.0, 1.0), 0.0)
    calibrated = predictor.with_blending({"neighbours": line}, {})
    (found,) = calibrated.predict([TEXTS[0]], scorer="neighbours", k=2, threshold=0.01)
    assert [label.index for label in found.labels] == [0, 3]
    for label in found.labels:
        assert label.probability == pytest.approx(1 / (1 + np.exp(-label.score)), rel=1e-5)


def test_documents_that_carried_a_label_are_told(predictor, memory):
    scorer = NeighboursScorer(memory, predictor.catalogue.log_priors)
    batch = predictor.read(TEXTS)
    found = scorer.carried_by(batch, 0, 0)
    assert [each.id for each in found] == ["doc-0", "doc-1"]
    assert found[0].similarity > found[1].similarity > 0
    assert sum(each.share for each in found) == pytest.approx(1)
    weights = np.exp(np.array([each.similarity for each in found]) / 0.2)
    assert [each.share for each in found] == pytest.approx((weights / weights.sum()).tolist())
    assert [each.id for each in scorer.carried_by(batch, 0, 3)] == ["doc-1"]
    assert scorer.carried_by(batch, 0, 5) == scorer.carried_by(batch, 2, 0) == []


def test_a_bundle_keeps_the_documents(stored, sparse_parts, memory):
    found = read_parts(stored)
    assert found.scorers == ("sparse", "neighbours") and found.models[NEIGHBOURS].ids == memory.ids
    assert stored.manifest.tensors["neighbours.safetensors"]["data"].dtype == "F16"
    wanted = Predictor(replace(sparse_parts, models={NEIGHBOURS: memory})).predict(
        TEXTS, scorer="neighbours", k=3
    )
    assert Predictor(found).predict(TEXTS, scorer="neighbours", k=3) == wanted


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda memory: replace(memory, ids=memory.ids[1:]), "ids of documents: got 5 entries"),
        (
            lambda memory: replace(memory, num_neighbours=0),
            "num_neighbours has the value 0, expected",
        ),
        (
            lambda memory: replace(memory, temperature=0.0),
            "temperature has the value 0.0, expected",
        ),
        (
            lambda memory: replace(
                memory, documents=replace(memory.documents, data=-memory.documents.data)
            ),
            "data has values that are not finite or below 0",
        ),
        (
            lambda memory: replace(
                memory, postings=replace(memory.postings, indices=memory.postings.indices + 5)
            ),
            "indices are not all from 0 to 5",
        ),
        (
            lambda memory: replace(memory, labels=csr_array(np.ones((6, 9), dtype=np.float32))),
            "",  # in SciPy's words
        ),
    ],
)
def test_documents_that_contradict_each_other_are_refused(
    sparse_parts, sparse_manifest, memory, tmp_path, spoil, message
):
    said = replace(sparse_manifest, scorers=("sparse", "neighbours"))
    spoilt = replace(sparse_parts, models={NEIGHBOURS: spoil(memory)})
    write_parts(tmp_path / "spoilt", spoilt, said, tmp_path / "scratch")
    wanted = f"bundle 'spoilt': neighbours.safetensors can't be used: {message}.*; train again"
    with pytest.raises(BundleCorruptError, match=wanted):
        read_parts(open_bundle(tmp_path / "spoilt"))


def test_an_added_label_is_carried_by_no_document(parts, manifest, memory, tmp_path):
    scorers = ("retrieval", "classifier", "linear", "sparse", "neighbours")
    write_parts(
        tmp_path / "before",
        replace(parts, models={**parts.models, NEIGHBOURS: memory}),
        replace(manifest, scorers=scorers),
        tmp_path / "scratch",
    )
    add_labels(open_bundle(tmp_path / "before"), [Label("new", "river fish")])(tmp_path / "after")
    before, after = (
        Predictor.of_bundle(open_bundle(tmp_path / name), device="cpu")
        for name in ("before", "after")
    )
    assert len(after.catalogue) == NUM_LABELS + 1
    batch = after.read(TEXTS)
    new = np.full((len(TEXTS), 1), NUM_LABELS, dtype=np.int64)
    assert np.isneginf(after.score(batch, new, OPTIONS)).all()
    assert "neighbours" not in after.describe(NUM_LABELS).scorers
    np.testing.assert_array_equal(
        after.rank(batch, OPTIONS).labels, before.rank(before.read(TEXTS), OPTIONS).labels
    )
