"""Learning from feedback: a training on the corpus with the feedback applied, and nothing else."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtail.ext.learn.learn import Learned, LearningRun, _with_all_names, learn
from longtail.models.bundle.registry import Registry
from longtail.models.bundle.trained_on import digests_of, read_trained_on
from longtail.models.edit.rewriting import write_changed
from longtail.models.errors import ConfigError, DataError
from longtail.models.kinds.storage import read_parts, tensors_of
from longtail.models.names import CLASSIFIER, NAMES, NEIGHBOURS
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.data.feedback import read_feedback

NEW_TEXT = "Rules on the trade in zebra hides and other hides of zebras\nZebra hides are traded."
NEW_ID = "new:zebra-hides"
Line = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A copy of a trained model, with a folder for the work and feedback to learn from."""

    registry: Registry
    work: Path
    corpus: Path
    feedback: Path

    def learn(self, *, version: int | str = "current", activate: bool = True) -> Learned:
        corpus, said = open_dataset(self.corpus), read_feedback(self.feedback)
        return learn(LearningRun(said, corpus, self.registry, version, self.work, activate))

    def predictor(self, version: int) -> Predictor:
        return Predictor(read_parts(self.registry.open(version)), device="cpu")


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


def applied(corpus: Path, folder: Path, lines: list[Line]) -> Path:
    """Write the corpus with the first two lines of the feedback applied by hand."""
    shutil.copytree(corpus, folder)
    rows = [json.loads(x) for x in (folder / "train.jsonl").read_text().splitlines()]
    rows[0]["labels"] = sorted({*rows[0]["labels"], *lines[1]["added"]} - {*lines[1]["rejected"]})
    rows.append({"text": lines[0]["text"], "labels": [*lines[0]["added"], NEW_ID]})
    (folder / "train.jsonl").write_text("".join(json.dumps(x) + "\n" for x in rows))
    with (folder / "labels.jsonl").open("a") as file:
        file.write(json.dumps({"id": NEW_ID, "name": "zebra hides"}) + "\n")
    return folder


def files_of(registry: Registry, version: int) -> dict[str, str]:
    """SHA-256 of each file of a version but those that name documents."""
    files = registry.open(version).manifest.files
    return {
        name: info.sha256 for name, info in files.items() if not name.endswith("neighbours.json")
    }


def test_it_is_a_training_on_the_corpus_with_the_feedback_applied(
    place, trained_sparse, lines, tmp_path, train_in
):
    here = place(trained_sparse)
    done = here.learn()
    assert here.registry.current() == done.version == 2
    learned = done.learned
    counted = (learned.new_documents, learned.corrected_documents, learned.known_documents)
    assert (*counted, learned.left_out_texts, learned.new_labels) == (1, 1, 1, 1, 1)
    manifest = here.registry.open(2).manifest
    assert manifest.learned_from == learned and manifest.training_document_count == 61
    before = here.registry.open(1).manifest
    assert manifest.data_fingerprint == before.data_fingerprint
    assert manifest.training == before.training
    config = TrainingConfig.model_validate(before.training)
    by_hand = train_in(tmp_path / "hand", config, applied(here.corpus, tmp_path / "all", lines))
    assert files_of(here.registry, 2) == files_of(by_hand.registry, 1)
    expected = by_hand.bundle.manifest
    assert (manifest.blends, manifest.metrics) == (expected.blends, expected.metrics)


def test_the_encoder_and_its_classifier_stay_and_the_new_label_is_found(place, trained):
    here = place(trained)
    done = here.learn()
    before, after = (read_parts(here.registry.open(x)) for x in (1, done.version))
    manifest = here.registry.open(done.version).manifest
    new = after.catalogue.row_of_id(NEW_ID)
    assert (
        new == len(after.catalogue) - 1
        and list(before.catalogue.replaced(training_count=[0] * new, pseudo_description=[""] * new))
        == list(
            after.catalogue.replaced(
                training_count=[0] * (new + 1), pseudo_description=[""] * (new + 1)
            )
        )[:-1]
    )
    assert manifest.encoder == here.registry.open(1).manifest.encoder
    first, second = (each.dense.encoder.state_dict() for each in (before, after))
    assert all(bool((first[name] == second[name]).all()) for name in first)
    rows = [each.models[CLASSIFIER].model for each in (before, after)]
    assert np.array_equal(rows[0].weight, rows[1].weight)
    assert set(manifest.metrics["dev"]) == set(after.scorers) == set(before.scorers)
    predictor = Predictor(after, device="cpu")
    batch = predictor.read([NEW_TEXT])
    for scorer in ("names", "neighbours", "ensemble"):
        found = predictor.rank(batch, RankingOptions(k=5, scorer=scorer)).labels
        assert new in found, scorer
    assert after.dense.label_vectors[-1].any()


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
    assert (first.version, here.registry.current()) == (2, 1)
    with monkeypatch.context() as patch:
        patch.setattr("longtail.ext.learn.learn.read_parts", None)
        assert here.learn(activate=False) == here.learn(version=2) == Learned(2, None)
    assert here.learn().version == 2 and here.registry.current() == 2
    write_feedback(lines[1])
    assert here.learn(version=1).version == 3


@pytest.mark.parametrize("kept", [[], [2]])
def test_without_anything_new_there_is_nothing_to_learn(
    place, trained_sparse, write_feedback, lines, kept
):
    here = place(trained_sparse)
    write_feedback(*(lines[row] for row in kept))
    assert here.learn() == Learned(1, None)
    assert here.registry.versions() == [1] and not list(here.work.rglob("run.json"))


def test_the_new_version_records_what_it_was_learned_from(place, trained_sparse):
    here = place(trained_sparse)
    here.learn()
    old, new = (read_trained_on(here.registry.open(version)) for version in (1, 2))
    text = digests_of([NEW_TEXT])
    assert new.knows("train", text).all() and not old.knows("train", text).any()
    assert len(new.digests["train_texts"]) == len(old.digests["train_texts"]) + 1
    assert replace(new, digests={}) == replace(old, digests={})


def test_deleted_feedback_is_forgotten(place, trained_sparse, write_feedback, lines):
    """What a version learns depends on all of the feedback, and on nothing that it was before."""
    here = place(trained_sparse)
    here.learn()
    write_feedback(lines[2])
    done = here.learn()
    first, last = (read_parts(here.registry.open(x)) for x in (1, done.version))
    counts = last.catalogue.training_counts.tolist()
    assert counts == [*first.catalogue.training_counts.tolist(), 0]
    assert arrays_of(first, "sparse") == arrays_of(last, "sparse")


def arrays_of(parts, kind: str) -> dict[str, bytes]:
    found: Mapping[str, np.ndarray] = tensors_of(parts)[f"{kind}.safetensors"]
    return {name: array.tobytes() for name, array in found.items()}


def test_labels_out_of_use_stay_out_of_use(place, trained_sparse, lines):
    here = place(trained_sparse)
    bundle = here.registry.open(1)
    ids = [label.id for label in bundle.catalogue]
    old = lines[0]["added"][0]
    used = [label.training_count for label in bundle.catalogue]
    other = next(x for x, count in zip(ids, used, strict=True) if count and x != old)
    retired = bundle.catalogue.replaced(
        is_retired=[x == old for x in ids], replaced_by=[(other,) if x == old else () for x in ids]
    )
    texts: dict[str, str] = {}
    if NAMES in bundle.manifest.scorers:
        texts["names.jsonl"] = retired.to_jsonl()
    here.registry.publish(lambda to: write_changed(to, bundle, retired, {}, texts))
    done = here.learn()
    after = read_parts(here.registry.open(done.version))
    row = after.catalogue.row_of_id(old)
    assert here.registry.open(done.version).manifest.retired_label_count == 1
    assert not after.catalogue[row].is_in_use and after.catalogue.training_counts[row] == 0
    assert row not in after.sparse.labels
    replaced = after.catalogue.row_of_id(other)
    memory = after.models.get(NEIGHBOURS)
    assert memory is None or replaced in memory.labels[[len(memory.ids) - 1]].indices


def test_labels_have_all_names_that_the_model_knows(trained):
    """The catalogue of a bundle has only those that label texts are to have."""
    parts = read_parts(trained.bundle)
    names = parts.models[NAMES]
    named = names.catalogue.replaced(alternative_names=[("pond",)] * len(parts.catalogue))
    known = replace(parts, models={**parts.models, NAMES: replace(names, catalogue=named)})
    found = _with_all_names(known)
    assert [x.alternative_names for x in found] == [("pond",)] * len(found)
    assert [x.id for x in found] == [x.id for x in parts.catalogue]


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

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("longtail.training.pipeline.train.finish_on_dev", killed)
        with pytest.raises(KeyboardInterrupt):
            here.learn()
    assert here.registry.versions() == [1]
    monkeypatch.setattr(
        "longtail.training.sparse.fit.SvmProblem.fit", killed
    )  # no row is fitted again
    assert here.learn().version == 2


def test_a_corpus_without_dev_documents_is_learned_from_to_its_end(
    train_in, sparse_config, tiny_corpus, tmp_path, write_feedback, lines
):
    corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    (corpus / "dev.jsonl").unlink()
    config = sparse_config.model_copy(update={"held_out_dev": 0.4})
    found = train_in(tmp_path / "run", config, corpus)
    here = Place(found.registry, tmp_path / "work", corpus, write_feedback(*lines[:3]))
    bundle = here.registry.open(here.learn().version)
    assert bundle.manifest.held_out_documents and bundle.manifest.training_document_count == 61
    assert bundle.catalogue.training_counts[bundle.catalogue.row_of_id(NEW_ID)] == 1
