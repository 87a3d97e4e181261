"""Changes of a vocabulary as a version: what each kind does, and that all else stays to the bit."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.ext.editions.applying import Applied, apply_changes
from longtail.ext.editions.changes import TEXT_FIELDS, VocabularyChanges, texts_of
from longtail.ext.editions.difference import difference, read_merges
from longtail.ext.editions.refit import fitting_as
from longtail.ext.editions.report import report_lines
from longtail.ext.editions.rows import merged_counts, with_merged_labels
from longtail.ext.editions.states import compare_states, state_of
from longtail.models.bundle.bundle import Bundle, open_bundle
from longtail.models.errors import DataError
from longtail.models.kinds.registry import KINDS
from longtail.models.kinds.storage import read_model, read_parts
from longtail.models.labels.catalogue import Label
from longtail.models.labels.filters import LabelFilter
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.names import NEIGHBOURS
from longtail.models.options import RankingOptions
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.predict.predictor import Predictor

TEXTS = ["the fish and the river", "grain law tax", "steel milk trade"]


@pytest.fixture
def apply(tmp_path):
    """Applies changes to a bundle; returns the new one, opened, and the report."""

    def apply_to(
        bundle: Bundle, changes: VocabularyChanges, name: str = "changed", **options
    ) -> tuple[Bundle, Applied]:
        write, applied = apply_changes(bundle, changes, **options)
        write(tmp_path / name)
        return open_bundle(tmp_path / name), applied

    return apply_to


def changed(bundle: Bundle, merges: dict[str, tuple[str, ...]] | None = None, **others: Label):
    """Return the changes that make labels others; None: gone."""
    old = state_of(bundle).labels
    new = {label.id: label for label in old} | others
    return difference(old, [label for label in new.values() if label is not None], merges)


def scores(bundle: Bundle, scorer: str, texts=TEXTS) -> np.ndarray:
    predictor = Predictor.of_bundle(bundle)
    labels = np.tile(np.arange(len(bundle.catalogue)), (len(texts), 1))
    return predictor.score(predictor.read(texts), labels, RankingOptions(scorer=scorer))


def answered(bundle: Bundle, scorer: str, texts=TEXTS, **options) -> set[str]:
    """Return the ids of all labels that any text gets."""
    predictor = Predictor.of_bundle(bundle)
    found = predictor.predict(texts, k=len(bundle.catalogue), scorer=scorer, **options)
    return {label.id for each in found for label in each.labels}


def files_changed(before: Bundle, after: Bundle) -> set[str]:
    old, new = before.manifest.files, after.manifest.files
    assert set(old) == set(new)
    return {name for name in old if old[name] != new[name]}


def test_a_retired_label_is_answered_by_no_scorer_and_still_known(bundle, apply):
    after, applied = apply(bundle, changed(bundle, L3=None))
    assert files_changed(bundle, after) == {"labels.jsonl"}
    assert (applied.num_retired, after.manifest.retired_label_count) == (1, 1)
    label = after.catalogue[3]
    assert (label.id, label.is_retired, label.training_count) == ("L3", True, 4)
    for scorer in bundle.manifest.scorers:
        assert "L3" in answered(bundle, scorer)
        assert answered(after, scorer) == answered(bundle, scorer) - {"L3"}
        before, now = scores(bundle, scorer), scores(after, scorer)
        assert (now[:, 3] == -np.inf).all()
        np.testing.assert_array_equal(np.delete(now, 3, axis=1), np.delete(before, 3, axis=1))
    asked = LabelFilter(include=("L3", "L4"))
    assert answered(after, "sparse", label_filter=asked) <= {"L4"}
    details = Predictor.of_bundle(after).describe(3)
    assert details.scorers == () and details.nearest
    near = Predictor.of_bundle(after).describe(4).nearest
    assert "L3" not in {label.id for label in near}


def test_a_renamed_label_keeps_its_weights_and_is_read_again(bundle, apply):
    renamed = replace(state_of(bundle).labels[1], name="the court", notation="7")
    after, applied = apply(bundle, changed(bundle, L1=renamed))
    assert applied.num_encoded == 0  # these labels have no text for the encoder
    assert after.catalogue[1] == replace(bundle.catalogue[1], name="the court", notation="7")
    assert files_changed(bundle, after) == {"labels.jsonl"}


def test_a_change_of_the_scheme_alone_is_followed(bundle, apply):
    given = replace(state_of(bundle).labels[1], scheme=("topic", "genre"))
    changes = VocabularyChanges.from_json(changed(bundle, L1=given).to_json(), "c.json")
    after, applied = apply(bundle, changes)
    assert after.catalogue[1] == replace(bundle.catalogue[1], scheme=("topic", "genre"))
    assert (applied.num_encoded, files_changed(bundle, after)) == (0, {"labels.jsonl"})
    assert not changed(after, L1=replace(given, scheme=("genre", "topic")))  # their order is none
    (line,) = (each for each in report_lines(changes) if each.startswith("  "))
    assert line == '  L1  scheme: [] -> ["topic", "genre"]'
    gone, _ = apply(after, changed(after, L1=replace(given, scheme=())), "gone")
    assert gone.manifest.digest == bundle.manifest.digest


def test_new_labels_come_last_and_a_moved_one_is_found_under_its_parent(bundle, apply):
    new = Label("N", "port", broader=("L0",))
    moved = replace(state_of(bundle).labels[5], broader=("N",))
    after, applied = apply(bundle, changed(bundle, N=new, L5=moved))
    assert (applied.num_new, applied.num_encoded, applied.can_find_new) == (1, 1, True)
    assert [label.id for label in after.catalogue][6:] == ["L6", "N"]
    assert files_changed(bundle, after) == {"labels.jsonl", "retrieval.safetensors"}
    under = LabelFilter(under=("L0",))
    assert answered(after, "retrieval", label_filter=under) == {"L0", "N", "L5"}
    before, now = scores(bundle, "retrieval"), scores(after, "retrieval")
    np.testing.assert_array_equal(now[:, :7], before)


def test_a_merged_label_gives_its_rows_and_counts_to_the_other(bundle, apply):
    after, applied = apply(bundle, changed(bundle, {"L3": ("L1",), "L4": ("L2",)}))
    assert [(x.id, x.merged, x.training_count, x.weights) for x in applied.merged] == [
        ("L1", ("L3",), 6, "kept"),
        ("L2", ("L4",), 5, "kept"),
    ]
    assert [label.training_count for label in after.catalogue] == [1, 6, 5, 0, 0, 0, 7]
    assert [after.catalogue[row].replaced_by for row in (3, 4)] == [("L1",), ("L2",)]
    for scorer in ("classifier", "linear", "sparse"):
        before, now = scores(bundle, scorer), scores(after, scorer)
        untouched = [0, 5, 6]
        np.testing.assert_array_equal(now[:, untouched], before[:, untouched])
        if scorer != "linear":  # whose tree adds what it adds to the label itself
            np.testing.assert_array_equal(now[:, [1, 2]], before[:, [3, 4]])
        assert (now[:, [3, 4]] == -np.inf).all()
    assert read_parts(after).sparse.labels.tolist() == [0, 1, 2, 6]


def test_a_new_label_takes_the_rows_of_the_one_that_it_replaces(bundle, apply):
    gone = replace(state_of(bundle).labels[6], is_deprecated=True, replaced_by=("N",))
    after, applied = apply(bundle, changed(bundle, L6=gone, N=Label("N", "grain")))
    assert applied.merged[0].weights == "kept" and after.catalogue[7].training_count == 7
    for scorer in ("classifier", "sparse"):
        np.testing.assert_array_equal(scores(after, scorer)[:, 7], scores(bundle, scorer)[:, 6])
    assert (scores(after, "linear")[:, 7] == -np.inf).all()  # no leaf of the tree


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (VocabularyChanges(), "there are none"),
        (VocabularyChanges(new=(Label("N", " "),)), "its name is blank"),
    ],
)
def test_what_can_not_be_applied_is_refused(bundle, changes, told):
    with pytest.raises(DataError, match=told):
        apply_changes(bundle, changes)


@pytest.mark.parametrize("seed", range(20))
def test_documents_of_merged_labels_join_and_count_once(seed):
    rng = np.random.default_rng(seed)
    truth = (rng.random((30, 8)) < 0.3).astype(np.float32)
    truth[:, 7] = 1  # documents without a label are left out
    memory = NeighbourMemory.of_documents(
        csr_array(np.ones((30, 1), dtype=np.float32)), csr_array(truth), tuple(map(str, range(30))),
        num_neighbours=3, temperature=0.1,
    )  # fmt: skip
    into = {int(a): 8 for a in rng.choice(4, 2, replace=False)} | {5: 6}
    counts = np.append(truth.sum(axis=0), 0).astype(np.int64)
    expected = np.hstack([truth, np.zeros((30, 1), dtype=np.float32)])
    for row, other in into.items():
        expected[:, other] = np.maximum(expected[:, other], expected[:, row])
        expected[:, row] = 0
    rows = np.array([into.get(row, row) for row in range(9)], dtype=np.int64)
    found = with_merged_labels(memory, rows)
    np.testing.assert_array_equal(found.labels.toarray(), expected)
    np.testing.assert_array_equal(merged_counts(counts, rows, memory), expected.sum(axis=0))


def test_a_trained_model_follows_its_vocabulary(trained, apply, tiny_texts):
    bundle = trained.bundle
    texts = [document["text"] for document in tiny_texts["dev"][:6]]
    counts = bundle.catalogue.training_counts
    a, b, out, split, named, moved = np.argsort(-counts, kind="stable")[:6].tolist()
    old = list(state_of(bundle).labels)
    new = {label.id: label for label in old}
    ids = [label.id for label in old]
    new[ids[a]] = replace(old[a], is_deprecated=True, replaced_by=(ids[b],))
    new[ids[b]] = replace(old[b], alternative_names=(old[a].name,))
    del new[ids[out]]
    new[ids[split]] = replace(old[split], is_deprecated=True, replaced_by=("N1", "N2"))
    new |= {"N1": Label("N1", "zyxwv"), "N2": Label("N2", "utsrq ponml")}
    new[ids[named]] = replace(old[named], name="hgfed")
    new[ids[moved]] = replace(old[moved], broader=(ids[b],))
    changes = difference(old, new.values())
    after, applied = apply(bundle, changes, fit_rows=fitting_as(bundle.manifest))
    assert [label.id for label in after.catalogue] == [*ids, "N1", "N2"]
    touched = [a, b, out, split, named]
    untouched = np.setdiff1d(np.arange(len(ids)), touched)
    for scorer in set(bundle.manifest.scorers) - {"names", "fast", "ensemble"}:
        before, now = scores(bundle, scorer, texts), scores(after, scorer, texts)
        same = untouched
        if scorer == "neighbours":  # labels of the nearest documents, whatever else they carry
            assert (now[:, [a, out, split]] == -np.inf).all()
        np.testing.assert_array_equal(now[:, same], before[:, same])
    for scorer in bundle.manifest.scorers:
        assert answered(after, scorer, texts).isdisjoint({ids[a], ids[out], ids[split]})
    _check_merged(bundle, after, applied, a, b)
    memory = read_model(bundle, KINDS[NEIGHBOURS], read_sparse(bundle))
    carriers = memory.labels[:, [split]].nonzero()[0].tolist()
    assert applied.split[0].document_ids == tuple(memory.ids[row] for row in carriers)
    label = after.catalogue[named]
    words = bundle.catalogue[named].pseudo_description.removeprefix(old[named].name)
    assert label.pseudo_description == f"hgfed{words}"
    found = Predictor.of_bundle(after).predict([f"hgfed and {texts[0]}"], scorer="names", k=5)
    assert label.id in {each.id for each in found[0].labels}
    assert not compare_states(state_of(after), state_of(after))


def _check_merged(bundle: Bundle, after: Bundle, applied: Applied, a: int, b: int) -> None:
    """Assert that a label has the documents of two, and ranks them as well as both did."""
    (merged,) = applied.merged
    assert merged.weights == "fitted"
    before, now = (
        read_model(each, KINDS[NEIGHBOURS], read_sparse(each)) for each in (bundle, after)
    )
    truth = before.labels[:, [a, b]].toarray().max(axis=1)
    np.testing.assert_array_equal(now.labels[:, [b]].toarray()[:, 0], truth)
    assert merged.training_count == truth.sum() == after.catalogue[b].training_count
    old, new = read_sparse(bundle), read_sparse(after)
    margins = {}
    for name, model, label in (("a", old, a), ("b", old, b), ("joined", new, b)):
        row = int(np.searchsorted(model.labels, label))
        found = before.documents.to_csr() @ model.weights[[row]].T.toarray()[:, 0] + model.bias[row]
        margins[name] = np.maximum(0, 1 - (2 * truth - 1) * found).sum()
    assert margins["joined"] <= min(margins["a"], margins["b"])
    assert a not in new.labels


def test_a_label_is_replaced_by_one_or_several(tmp_path):
    path = tmp_path / "merges.csv"
    path.write_text("id,replaced_by\na,b\nc,d; e\nc,e;f\n", encoding="utf-8")
    assert read_merges(path) == {"a": ("b",), "c": ("d", "e", "f")}


def test_lines_that_say_no_replacement_are_listed_together(tmp_path):
    path = tmp_path / "merges.csv"
    path.write_text("id,replaced_by\na,b\n,b\nc,\nd,e;d\n", encoding="utf-8")
    with pytest.raises(DataError, match="3 lines") as caught:
        read_merges(path)
    assert "line 3" in str(caught.value) and "'d' is to replace itself" in str(caught.value)


IDS = [f"u:{letter}" for letter in "abcdefghijkl"]


def random_label(rng: random.Random, label_id: str) -> Label:
    is_deprecated = rng.random() < 0.3
    others = rng.sample(IDS, rng.randrange(3))
    return Label(
        label_id,
        rng.choice(["fish", "law", "port"]),
        rng.choice(["", "a text"]),
        alternative_names=tuple(rng.sample(["x", "y"], rng.randrange(3))),
        names={"fi": "kala"} if rng.random() < 0.3 else {},
        notation=rng.choice(["", "1.2"]),
        scheme=tuple(sorted(rng.sample(["topic", "genre"], rng.randrange(3)))),
        broader=tuple(rng.sample(IDS, rng.randrange(3))),
        is_deprecated=is_deprecated,
        replaced_by=tuple(x for x in others if is_deprecated and x != label_id),
    )


def state(rng: random.Random) -> dict[str, Label]:
    ids = rng.sample(IDS, rng.randrange(1, len(IDS)))
    return {label_id: random_label(rng, label_id) for label_id in ids}


def uses(labels: dict[str, Label], label_id: str) -> bool:
    return label_id in labels and not labels[label_id].is_deprecated


def replaced_by(labels: dict[str, Label], older: dict[str, Label], label_id: str) -> set[str]:
    """Return what is reached over deprecated labels, one step at a time until nothing is new."""
    reached = {label_id}
    while True:
        more = {
            other
            for each in reached
            if not uses(labels, each)
            for other in (labels if each in labels else older).get(each, Label("", "")).replaced_by
        }
        if more <= reached:
            return {each for each in reached - {label_id} if uses(labels, each)}
        reached |= more


@pytest.mark.parametrize("seed", range(150))
def test_every_label_is_in_the_lists_that_dictionaries_tell(seed):
    rng = random.Random(seed)  # noqa: S311
    old, new = state(rng), state(rng)
    found = difference(rng.sample([*old.values()], len(old)), new.values())
    assert [x.id for x in found.new] == sorted(x for x in new if x not in old and uses(new, x))
    both = sorted(x for x in old if uses(new, x))
    texts = {x: [getattr(each[x], name) for name in TEXT_FIELDS] for each in (old,) for x in each}
    changed = [x for x in both if texts[x] != [getattr(new[x], name) for name in TEXT_FIELDS]]
    assert [x.id for x in found.renamed] == changed
    for each in found.renamed:
        assert replace(old[each.id], **texts_of(each)) == replace(
            old[each.id], **{name: getattr(new[each.id], name) for name in TEXT_FIELDS}
        )
    moved = [x for x in both if set(old[x].broader) != set(new[x].broader)]
    assert [(x.id, x.after) for x in found.reparented] == [(x, new[x].broader) for x in moved]
    assert found.restored == tuple(x for x in both if old[x].is_deprecated)
    out = {
        x: replaced_by(new, old, x)
        for x in sorted(old)
        if not uses(new, x) and (uses(old, x) or replaced_by(new, old, x) - replaced_by(old, {}, x))
    }
    told = {x.id: set(x.by) for x in (*found.merged, *found.split)}
    told |= {x.id: set() for x in found.deprecated}
    # Fewer replacements than before are a change, too.
    assert {x: by for x, by in told.items() if x in out} == out
    assert all(told[x] and told[x] < replaced_by(old, {}, x) for x in told.keys() - out.keys())
    assert all(x.is_gone == (x.id not in new) for x in (*found.merged, *found.deprecated))
    again = VocabularyChanges.from_json(found.to_json(), "changes")
    assert again == found
    assert bool(difference(new.values(), new.values())) is False
