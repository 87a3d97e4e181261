"""Learning from feedback: what is learned is what full training on the same documents learns."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.ext.learn.heeding import Heeding
from longtail.ext.learn.learn import Learned, LearningRun, learn
from longtail.models.bundle.registry import Registry
from longtail.models.bundle.trained_on import digests_of, read_trained_on
from longtail.models.errors import ConfigError, DataError
from longtail.models.kinds.storage import read_parts
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.names import NAMES, NEIGHBOURS
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.data.feedback import read_feedback
from longtail.training.sparse.fit import fit_sparse_model
from longtail.training.sparse.svm import StartingRows

NEW_TEXT = "Rules on the trade in zebra hides and other hides of zebras\nZebra hides are traded."


@dataclass(frozen=True)
class Place:
    """A copy of a trained model, with a folder for the work and feedback to learn from."""

    registry: Registry
    work: Path
    corpus: Path
    feedback: Path

    def learn(
        self, *, version: int | str = "current", activate: bool = True, full: bool = False
    ) -> Learned:
        corpus = open_dataset(self.corpus)
        said = read_feedback(self.feedback)
        return learn(LearningRun(said, corpus, self.registry, version, self.work, activate, full))


@pytest.fixture
def lines(tiny_corpus):
    """A new text with a new label, a corrected document, one that is known, and a dev document."""
    dataset = open_dataset(tiny_corpus)
    ids = [label.id for label in dataset.labels]
    documents = list(dataset.split("train"))
    first, second = documents[0], documents[1]
    absent = next(x for x in ids if ids.index(x) not in first.labels)
    return [
        {"text": NEW_TEXT, "added": [ids[first.labels[0]]], "proposed": [{"name": "zebra hides"}]},
        {"text": first.text, "added": [absent], "rejected": [ids[first.labels[0]]]},
        {"text": second.text, "accepted": [ids[second.labels[0]]]},
        {"text": next(iter(dataset.split("dev"))).text, "accepted": [ids[0]]},
    ]


@pytest.fixture
def place(tmp_path, tiny_corpus, write_feedback, lines):
    """Copies the registry of a trained model."""

    def copy(trained) -> Place:
        shutil.copytree(trained.registry.folder, tmp_path / "registry")
        registry = Registry(tmp_path / "registry")
        return Place(registry, tmp_path / "work", tiny_corpus, write_feedback(*lines))

    return copy


def truth_after(corpus: Path, lines: list[dict[str, object]], catalogue) -> csr_array:
    """The labels of the training documents, with the first two lines of the feedback applied."""
    truth = np.pad(open_dataset(corpus).split("train").scan().labels.toarray(), ((0, 1), (0, 1)))
    for line, row in zip(lines[:2], (60, 0), strict=True):
        for name, value in (("added", 1), ("rejected", 0)):
            for label_id in line.get(name, ()):
                truth[row, catalogue.row_of_id(label_id)] = value
    truth[60, catalogue.row_of_id("new:zebra-hides")] = 1
    return csr_array(truth.astype(np.float32))


def test_touched_labels_are_those_of_full_training_and_others_the_same_to_the_bit(
    place, trained_sparse, lines
):
    here = place(trained_sparse)
    done = here.learn()
    before, after = (read_parts(here.registry.open(x)) for x in (1, done.version))
    texts = [*open_dataset(here.corpus).split("train").texts(), NEW_TEXT]
    truth = truth_after(here.corpus, lines, after.catalogue)
    settings = here.registry.open(1).manifest.training
    full = fit_sparse_model(
        before.sparse.tfidf, before.sparse.tfidf.transform(texts), truth,
        SparseConfig.model_validate(settings["sparse"]), seed=settings["seed"],
        folder=here.work / "full",
    )  # fmt: skip
    ids = [x for line in lines[:2] for x in (*line["added"], *line.get("rejected", ()))]
    touched = {after.catalogue.row_of_id(x) for x in [*ids, "new:zebra-hides"]}
    assert done.learned.refitted_labels == len(touched)
    assert after.catalogue.training_counts.tolist() == truth.sum(axis=0).tolist()
    for label in range(len(after.catalogue)):
        expected = full if label in touched else before.sparse
        assert row_bytes(after.sparse, label) == row_bytes(expected, label), label
    named = after.catalogue[after.catalogue.row_of_id("new:zebra-hides")]
    assert named.pseudo_description.startswith("zebra hides")
    counted = (done.learned.new_documents, done.learned.corrected_documents)
    assert (*counted, done.learned.known_documents, done.learned.left_out_texts) == (1, 1, 1, 1)


def row_bytes(model, label: int) -> bytes:
    """Columns, weights and bias of a label's classifier; empty where it has none."""
    row = np.searchsorted(model.labels, label)
    if row == len(model.labels) or model.labels[row] != label:
        return b""
    part = slice(*model.weights.indptr[row : row + 2])
    columns = model.weights.indices[part].astype(np.int64).tobytes()
    return columns + model.weights.data[part].tobytes() + model.bias[row].tobytes()


def test_a_model_with_all_scorers_learns_and_ranks_the_new_label(place, trained):
    here = place(trained)
    done = here.learn()
    bundle = here.registry.open(done.version)
    manifest, parts = bundle.manifest, read_parts(bundle)
    new = bundle.catalogue.row_of_id("new:zebra-hides")
    assert new == len(bundle.catalogue) - 1 and here.registry.current() == done.version == 2
    assert manifest.learned_from == done.learned
    assert manifest.training_document_count == 61
    assert done.learned.is_calibrated and set(manifest.metrics["dev"]) == set(parts.scorers)
    predictor = Predictor(parts)
    batch = predictor.read([NEW_TEXT])
    for scorer in ("names", "neighbours", "ensemble"):
        found = predictor.rank(batch, RankingOptions(k=5, scorer=scorer)).labels
        assert new in found, scorer
    before = read_parts(here.registry.open(1))
    vectors = parts.dense.label_vectors
    assert vectors[:-1].tobytes() == before.dense.label_vectors.tobytes() and vectors[-1].any()


@pytest.mark.slow
def test_neighbours_and_names_are_counted_as_training_counts_them(place, trained, lines):
    here = place(trained)
    after = read_parts(here.registry.open(here.learn().version))
    documents = open_dataset(here.corpus).split("train")
    labels, texts = truth_after(here.corpus, lines, after.catalogue), [*documents.texts(), NEW_TEXT]
    memory = after.models[NEIGHBOURS]
    expected = NeighbourMemory.of_documents(
        after.sparse.tfidf.transform(texts), labels, [x.id for x in documents] + ["x"],
        num_neighbours=memory.num_neighbours, temperature=memory.temperature,
    )  # fmt: skip
    assert memory.ids[:-1] == expected.ids[:-1]
    assert (memory.documents.to_csr() != expected.documents.to_csr()).nnz == 0
    assert (memory.labels != expected.labels).nnz == 0

    named, known = (each.models[NAMES] for each in (after, read_parts(trained.bundle)))
    found = np.zeros_like(named.history.found)
    right = np.zeros_like(found)
    for row, text in enumerate(texts):
        matches = named.matcher.match([text])
        for label, kind in zip(matches.labels.tolist(), matches.kinds.tolist(), strict=True):
            found[label, kind] += 1
            right[label, kind] += int(labels[row, label])
    assert named.history.found.tolist() == found.tolist()
    assert named.history.right.tolist() == right.tolist()
    assert list(named.catalogue)[:-1] == list(known.catalogue)


@pytest.fixture(scope="session")
def trained_without_encoder(tmp_path_factory, train_in, sparse_config, tiny_corpus):
    config = sparse_config.model_copy(update={"scorers": ("sparse", "names", "neighbours")})
    return train_in(tmp_path_factory.mktemp("trained-without-encoder"), config, tiny_corpus)


@pytest.mark.parametrize(("most", "is_warm"), [(2, 1), (1, 0)])
def test_what_differs_alone_is_fitted_as_all_documents_are(
    place, trained_without_encoder, write_feedback, lines, monkeypatch, most, is_warm
):
    here, warm = place(trained_without_encoder), []
    monkeypatch.setattr("longtail.ext.learn.learn._MOST_CHANGED", most / 60)
    monkeypatch.setattr(
        "longtail.ext.learn.refit.StartingRows",
        lambda *args: warm.append(args) or StartingRows(*args),
    )
    write_feedback({"text": NEW_TEXT, "added": lines[0]["added"]}, lines[1])
    with monkeypatch.context() as patch:
        patch.setattr("longtail.training.lexical.fit.fit_name_model", None)
        done = here.learn()
    assert len(warm) == is_warm
    again = here.learn(version=1, activate=False, full=True)
    found, full, before = (
        read_parts(here.registry.open(x)) for x in (done.version, again.version, 1)
    )
    for name in ("documents", "postings"):
        for what in ("data", "indices", "indptr"):
            pair = [getattr(getattr(x.models[NEIGHBOURS], name), what) for x in (found, full)]
            assert np.array_equal(*pair), (name, what)
    assert found.models[NEIGHBOURS].ids == full.models[NEIGHBOURS].ids
    assert (found.models[NEIGHBOURS].labels != full.models[NEIGHBOURS].labels).nnz == 0
    names = [each.models[NAMES] for each in (found, full, before)]
    for what in ("documents", "pair_documents", "num_documents"):
        assert np.array_equal(*(getattr(each.counts, what) for each in names[:2]))
    assert [each.counts.num_documents for each in names] == [61, 61, 60]
    assert np.array_equal(names[0].history.found, names[1].history.found)
    assert np.array_equal(names[0].history.right, names[1].history.right)
    assert np.array_equal(found.sparse.labels, full.sparse.labels)
    rows = [each.sparse.weights.toarray() for each in (found, full)]
    is_kept = [
        row_bytes(found.sparse, x) == row_bytes(before.sparse, x) for x in found.sparse.labels
    ]
    assert len(is_kept) - sum(is_kept) == done.learned.refitted_labels == 2
    norms = [np.linalg.norm(each, axis=1) for each in rows]
    assert (rows[0] * rows[1]).sum(axis=1) == pytest.approx(norms[0] * norms[1], rel=0.01)
    # A document that is to be forgotten can't be counted off: its text is not known.
    write_feedback(lines[1])
    again = read_parts(here.registry.open(here.learn().version)).models[NAMES]
    assert again.counts.num_documents == 60


@pytest.mark.parametrize(
    ("most", "least", "full", "is_calibrated", "heeds"),
    [(2, 0, False, 0, 0), (1, 0, False, 1, 0), (2, 2, False, 1, 1), (2, 0, True, 1, 0)],
)
def test_few_changes_that_answers_follow_leave_what_dev_fitted(
    place, trained_sparse, monkeypatch, most, least, full, is_calibrated, heeds
):
    here, heeded, heed = place(trained_sparse), [], Heeding.of
    monkeypatch.setattr(Heeding, "of", lambda *args: heeded.append(args) or heed(*args))
    monkeypatch.setattr("longtail.ext.learn.learn._MOST_CHANGED", most / 60)
    monkeypatch.setattr("longtail.ext.learn.learn._LEAST_FOLLOWED", least)
    done = here.learn(full=full)
    before, after = (here.registry.open(version).manifest for version in (1, 2))
    assert (done.learned.is_calibrated, len(heeded)) == (is_calibrated, heeds)
    assert (before.calibrations != after.calibrations) == is_calibrated
    assert (before.metrics != after.metrics) == is_calibrated
    predictor = Predictor(read_parts(here.registry.open(2)))
    batch = predictor.read([NEW_TEXT])
    new = predictor.catalogue.row_of_id("new:zebra-hides")
    options = RankingOptions(k=5, scorer=after.default_scorer)
    assert new in predictor.rank(batch, options).labels
    assert len(predictor.predict_batch(batch, options)[0].labels) == 5


def test_the_same_run_gives_the_same_version_and_nothing_new_gives_none(place, trained_sparse):
    here = place(trained_sparse)
    first = here.learn(version=1)
    shutil.rmtree(here.work)
    assert here.learn(version=1).version == first.version == 2
    assert here.learn() == Learned(2, None)
    assert here.registry.versions() == [1, 2]
    assert here.registry.rollback() == 1


def test_a_candidate_that_need_not_become_current_is_not_learned_again(
    place, trained_sparse, monkeypatch, write_feedback, lines
):
    here = place(trained_sparse)
    first = here.learn(activate=False)
    assert (first.version, here.registry.current()) == (2, 1) and first.learned.is_better
    with monkeypatch.context() as patch:
        patch.setattr("longtail.ext.learn.learn.read_parts", None)
        assert here.learn(activate=False) == here.learn(version=2) == Learned(2, None)
    assert here.learn().version == 2 and here.registry.current() == 2
    write_feedback(lines[1])
    assert here.learn(version=1).version == 3


def test_without_feedback_there_is_nothing_to_learn(place, trained_sparse, write_feedback):
    here = place(trained_sparse)
    write_feedback()
    assert here.learn() == Learned(1, None) and not here.work.exists()


def test_the_new_version_records_what_it_was_learned_from(place, trained_sparse):
    here = place(trained_sparse)
    here.learn()
    old, new = (read_trained_on(here.registry.open(version)) for version in (1, 2))
    text = digests_of([NEW_TEXT])
    assert new.knows("train", text).all() and not old.knows("train", text).any()
    assert len(new.digests["train_texts"]) == len(old.digests["train_texts"]) + 1


def test_no_copy_of_the_dev_texts_is_left_in_the_work_folder(place, trained_sparse):
    here = place(trained_sparse)
    assert here.learn().learned is not None
    assert [*here.work.rglob("stages.jsonl")] and not [*here.work.rglob("dev.jsonl")]


@pytest.mark.slow
def test_deleted_feedback_is_forgotten(place, trained, write_feedback, lines):
    """What a version learns depends on all of the feedback, and on nothing that it was before."""
    here = place(trained)
    here.learn()
    write_feedback(lines[2], {"text": NEW_TEXT, "rejected": ["new:zebra-hides"]})
    done = here.learn()
    assert (done.learned.new_documents, done.learned.corrected_documents) == (1, 0)
    first, last = (here.registry.open(version) for version in (1, done.version))
    counts = last.catalogue.training_counts.tolist()
    assert counts == [*first.catalogue.training_counts.tolist(), 0]
    old, new = (read_parts(each).models[NEIGHBOURS] for each in (first, last))
    assert new.ids == old.ids


def test_feedback_of_which_nothing_can_be_learned_is_refused(place, trained_sparse, write_feedback):
    here = place(trained_sparse)
    write_feedback({"text_sha256": "0" * 64, "accepted": ["1"]})
    with pytest.raises(DataError, match="nothing can be learned from 1 entries: 1 entries without"):
        here.learn()
    write_feedback({"text": "Fish", "accepted": ["no such label"]})
    with pytest.raises(DataError, match="no label of the model is named, but 'no such label'"):
        here.learn()


def test_another_corpus_is_refused(place, trained_sparse, tmp_path):
    here = place(trained_sparse)
    other = shutil.copytree(here.corpus, tmp_path / "other")
    content = (other / "dev.jsonl").read_text()
    (other / "train.jsonl").write_text((other / "train.jsonl").read_text() + content)
    with pytest.raises(ConfigError, match="is not the corpus that version 1 was trained on"):
        Place(here.registry, here.work, other, here.feedback).learn()
    assert here.registry.versions() == [1]


def test_a_killed_run_resumes_after_the_rows_that_it_fitted(place, trained_sparse, monkeypatch):
    here = place(trained_sparse)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("longtail.ext.learn.learn.count_followed", killed)
        with pytest.raises(KeyboardInterrupt):
            here.learn()
    assert here.registry.versions() == [1]
    monkeypatch.setattr(
        "longtail.training.sparse.fit.SvmProblem.fit", killed
    )  # no row is fitted again
    assert here.learn().version == 2
