"""The stream and the measures of the benchmark of the whole circle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from longtail.training.data.dataset import open_dataset
from longtail.training.data.splits import Document


@pytest.fixture(autouse=True)
def _beside(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def corpus(tmp_path):
    """Writes three splits; a document of each year in each, which carries the year as its label."""
    for name in ("train", "dev", "test"):
        lines = [f'{{"id": "3{y}R01{name}", "text": "{y}", "labels": ["{y}"]}}\n' for y in YEARS]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    return open_dataset(tmp_path)


YEARS = range(1990, 2000)


def test_a_year_is_in_one_step_and_steps_are_about_equal():
    from document_stream import places_of

    counts = Counter(dict.fromkeys(YEARS, 10))
    assert [*places_of(counts, 0.4, 3).values()] == [0] * 4 + [1] * 2 + [2] * 2 + [3] * 2
    assert [*places_of(Counter({1: 90, 2: 10}), 0.5, 1).values()] == [0, 1]


def test_a_corpus_is_cut_by_the_years_in_its_ids(corpus):
    from document_stream import CELEX, cut_by_year, labels_of

    start, first, second = cut_by_year(corpus, CELEX, 0.6, 2)
    assert (start.years, first.years, second.years) == ((1990, 1995), (1996, 1997), (1998, 1999))
    assert [each.text for each in first.to_learn] == ["1996", "1997"] * 2
    assert [each.text for each in first.all] == ["1996", "1997"] * 3
    names = {corpus.labels[row].id for row in labels_of(second.all)}
    assert names == {"1998", "1999"}


def test_ids_without_a_year_and_too_many_steps_are_told(corpus):
    from document_stream import CELEX, cut_by_year, year_of

    with pytest.raises(ValueError, match=r"'no-7' does not begin as .* with --year"):
        year_of("no-7", CELEX)
    assert year_of("no-7", r"no-(\d)") == 7
    with pytest.raises(ValueError, match="5 steps are too many"):
        cut_by_year(corpus, CELEX, 0.8, 5)


def test_new_labels_are_measured_over_the_documents_that_carry_one():
    from document_stream import Step
    from learning_loop_measures import Measures, padded

    carried = {"a": (0, 2), "b": (0,), "c": (2, 3), "d": (1, 3)}
    documents = [Document(name, name, rows) for name, rows in carried.items()]
    step = Step(
        (2001, 2002),
        {"train": documents[:2], "dev": documents[2:3], "test": documents[3:]},
        {"a": 2001, "b": 2001, "c": 2002, "d": 2002},
    )
    answers = [[0, 2], [1, 0], [2], [0]]
    ranked = {"loop": np.array([padded(rows) for rows in answers])}
    found = Measures(step, 4, at_start={0, 1}, before={0, 1, 2}, ranked=ranked).to_json()
    assert (found["documents"], found["with new labels"]) == (4, 3)
    assert found["P@5, loop"] == pytest.approx(100 * np.mean([2 / 5, 1 / 5, 1 / 5, 0]))
    assert found["R@10 of new, loop"] == pytest.approx(100 * np.mean([1, 1 / 2, 0]))
    assert found["possible"] == pytest.approx(100 * np.mean([1, 1 / 2, 0]))
    first, second = found["by year"]
    assert (first["year"], first["R@10 of new, loop"]) == (2001, 100)
    assert (second["documents"], second["R@10 of new, loop"]) == (2, 25)


def test_what_is_said_of_an_answer_names_each_label_once():
    from learning_loop import entry_of

    said = entry_of(
        Document("d", "text", ()),
        right=["a", "b", "new"],
        found=["a", "x", "y", "z", "w", "b"],
        known={"a", "b", "x", "y", "z", "w"},
        names={"new": "New"},
    )
    assert said["accepted"] == ["a"] and said["rejected"] == ["x", "y", "z", "w"]
    assert said["added"] == ["b"] and said["proposed"] == [{"id": "new", "name": "New"}]


def test_the_picture_leaves_out_what_is_not_known(tmp_path):
    from learning_loop_picture import LINES, draw

    def step(first, recall):
        figures = {"possible": recall}
        for arm in LINES:
            figures |= {f"P@5, {arm}": 50.0, f"R@10 of new, {arm}": recall}
        return {"years": [first, first + 1], **figures, "by year": [{"year": first, **figures}]}

    draw([step(2000, None), step(2002, 10.0)], tmp_path / "loop.png")
    assert (tmp_path / "loop.png").stat().st_size > 1000
