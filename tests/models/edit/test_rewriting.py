"""What an edited vocabulary takes from other labels: measured, and refused where it is too much."""

from __future__ import annotations

import string
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.edit import rewriting
from longtail.models.edit.add_labels import add_labels
from longtail.models.edit.rewriting import MeasuredOn, measured
from longtail.models.errors import DataError
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.training.assessment.untrained import held_out
from longtail.training.configuration.run import read_config
from tests.conftest import read_lines, write_lines

SIZES = {"train": ("trn", 700), "dev": ("dev", 200), "test": ("tst", 20)}
STOP_WORDS = ("the", "of", "and", "in", "to", "for", "on", "by", "with", "from", "how to", "in the")


@pytest.fixture
def guarded(monkeypatch, tmp_path):
    """Measure an edit of a catalogue of three labels, given the first labels before and after."""

    def write(first, now, labels=(), *, force=False, retired=False):
        before = LabelCatalogue([Label("a", "A"), Label("b", "B"), Label("c", "C")])
        after = LabelCatalogue([Label("a", "A", is_retired=retired), *list(before)[1:], NEW])
        bundles = [Mock(spec=Bundle, catalogue=each) for each in (before, after)]
        found = iter(
            ([(label,) for label in bundle.catalogue], np.array(rows))
            for bundle, rows in zip(bundles, (first, now), strict=True)
        )
        monkeypatch.setattr(rewriting, "_labels_and_first", lambda *_: next(found))
        monkeypatch.setattr(rewriting, "open_bundle", lambda _: bundles[1])
        said: list[str] = []
        folder = tmp_path / "bundle"
        folder.mkdir(exist_ok=True)
        on = MeasuredOn(["text"] * len(first), labels)
        measured(lambda _: Mock(spec=Manifest), bundles[0], on, said.append, force=force)(folder)
        return said[0]

    return write


NEW = Label("n", "New")


def test_places_are_counted_and_too_many_are_refused(guarded, tmp_path):
    said = "Of 200 texts, 3 have another first label, 2 an added or changed one."
    assert guarded([0] * 200, [3, 3, 1] + [0] * 197) == said
    with pytest.raises(DataError, match=r"Got 3 first places taken .*'New': 3.*at most 1%"):
        guarded([0] * 200, [3, 3, 3] + [0] * 197)
    assert not (tmp_path / "bundle").exists()
    assert "3 an added" in guarded([0] * 200, [3, 3, 3] + [0] * 197, force=True)


@pytest.mark.parametrize(
    ("first", "now", "retired"),
    [
        ([0] * 20, [3] + [0] * 19, False),  # one text proves nothing
        ([0] * 20, [3] * 20, True),  # the label before is out of use
        ([-1] * 20, [3] * 20, False),  # there was none
        ([0] * 20, [1] * 20, False),  # the edit took none
        ([0] * 20, [-1] * 20, False),
    ],
)
def test_what_takes_nothing_from_labels_in_use_is_written(guarded, first, now, retired):
    said = guarded(first, now, retired=retired)
    assert "So few show large effects only; --data DATA" in said


def test_a_place_that_a_label_deserves_is_not_taken(guarded):
    carried = [["a", "n"]] * 10 + [["a"]] * 90
    said = guarded([0] * 100, [3] * 10 + [0] * 90, carried)
    assert "P@1 100.0% before, 100.0% after." in said
    with pytest.raises(DataError, match=r"P@1 100\.0% before, 98\.0% after.* Got 2 first places"):
        guarded([0] * 100, [3] * 12 + [0] * 88, carried)


def test_an_edit_that_lowers_precision_is_refused_though_it_takes_no_place(guarded, tmp_path):
    carried = [["a"]] * 200
    first = [0] * 100 + [1] * 100
    assert "P@1 50.0% before, 47.5% after." in guarded(
        first, [1] * 5 + [0] * 95 + [1] * 100, carried
    )
    with pytest.raises(DataError, match=r"46\.0% after\. Got P@1 lower .*standard error \(3\.5%\)"):
        guarded(first, [1] * 8 + [0] * 92 + [1] * 100, carried)
    assert not (tmp_path / "bundle").exists()
    assert "46.0% after" in guarded(first, [1] * 8 + [0] * 92 + [1] * 100, carried, force=True)


@pytest.fixture(scope="module")
def demo(tmp_path_factory, train_in):
    """A model without an encoder of some of the demo, and its corpus."""
    corpus = tmp_path_factory.mktemp("demo")
    names = read_lines("lbl.json.gz")
    for split, (file, count) in SIZES.items():
        documents = read_lines(f"{file}.json.gz")[:count]
        write_lines(
            corpus / f"{split}.jsonl",
            (
                {
                    "id": x["uid"],
                    "text": f"{x['title']}\n{x['content']}",
                    "labels": [names[index]["uid"] for index in x["target_ind"]],
                }
                for x in documents
            ),
        )
    write_lines(corpus / "labels.jsonl", ({"id": x["uid"], "name": x["title"]} for x in names))
    config = read_config(None, {"encoder": "none"})
    return train_in(tmp_path_factory.mktemp("demo-model"), config, corpus), corpus


def names_of(kind: str, texts: list[str]) -> list[str]:
    """Return names of labels that say nothing, or are words of documents."""
    words = Counter(word for text in texts for word in set(text.lower().split()) if word.isalpha())
    drawn = np.random.default_rng(0).permutation(sorted(words))[:100].tolist()
    return {
        "stop words": list(STOP_WORDS),
        "numbers": [str(number) for number in [*range(1, 21), 1992, 1999, 2000, 2001, 100, 1000]],
        "letters": list(string.ascii_lowercase),
        "common words": [word for word, _ in words.most_common(100)],
        "words": drawn,
    }[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stop words", "numbers", "letters", "common words", "words"])
def test_labels_of_words_harm_no_other_label_or_are_refused(demo, tmp_path, kind):
    trained, corpus = demo
    on = held_out(corpus, trained.bundle)
    labels = [Label(f"new {x}", x) for x in names_of(kind, list(on.texts))]
    said: list[str] = []
    registry = Registry(tmp_path / "registry")
    write = measured(
        add_labels(trained.bundle, labels), trained.bundle, on, said.append, force=False
    )
    refused = ""
    try:
        registry.publish(write)
    except DataError as error:
        refused = str(error)
    if refused:
        assert "first places taken from other labels" in refused or "P@1 lower by" in refused
        assert [path.name for path in registry.folder.iterdir() if path.is_dir()] == []
        return
    old, new = (first_precision(x, on) for x in (trained.bundle, registry.open(1)))
    assert new.mean() >= old.mean() - old.std() / np.sqrt(len(old)), said


def first_precision(bundle, on: MeasuredOn) -> np.ndarray:
    """Return whether the first label of each text that is not new is right."""
    from longtail.models.predict.predictor import Predictor

    found = Predictor.of_bundle(bundle).predict(on.texts, k=1)
    ids = [[label.id for label in each.labels] for each in found]
    return np.array([bool({*x} & {*y}) for x, y in zip(ids, on.labels, strict=True)])
