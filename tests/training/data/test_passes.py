"""How often the files of a corpus are parsed: once, or twice, however they lie."""

import json
import random
from pathlib import Path

import pytest

import longtail
from longtail.models.corpus import line_forms
from longtail.training.data.dataset import open_dataset

WORDS = [f"word{number}" for number in range(40)]
NUM_DOCUMENTS = 800


def lines_of(count: int) -> list[dict[str, object]]:
    rng = random.Random(0)  # noqa: S311
    texts = ([*rng.sample(WORDS, 6), f"n{number}"] for number in range(count))
    return [{"text": " ".join(words), "labels": sorted(words[:2])} for words in texts]


def write(path: Path, count: int) -> None:
    lines = lines_of(count)
    if path.suffix == ".csv":
        rows = [f"{line['text']},{';'.join(line['labels'])}" for line in lines]
        path.write_text("\n".join(["text,labels", *rows]) + "\n")
    else:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_labels(path: Path, words: list[str], **more: object) -> None:
    path.write_text("".join(json.dumps({"id": x, "name": x, **more}) + "\n" for x in words))


def make(folder: Path, case: str) -> Path:
    if case == "one file":
        write(folder / "all.csv", NUM_DOCUMENTS)
        return folder / "all.csv"
    write(folder / "train.jsonl", NUM_DOCUMENTS)
    if case != "no dev split":
        write(folder / "dev.jsonl", 20)
        (folder / "dev.jsonl").write_text((folder / "dev.jsonl").read_text().replace("n", "m"))
    if case == "label file":
        write_labels(folder / "labels.jsonl", WORDS)
    if case == "deprecated labels":
        write_labels(folder / "labels.jsonl", WORDS, is_deprecated=True)
    return folder


@pytest.fixture
def num_parsed(monkeypatch):
    """The number of rows that were parsed."""
    counted = [0]

    def counting(read):
        def rows(*arguments):
            for row in read(*arguments):
                counted[0] += 1
                yield row

        return rows

    monkeypatch.setattr(line_forms, "json_rows", counting(line_forms.json_rows))
    monkeypatch.setattr(line_forms.CsvTable, "rows", counting(line_forms.CsvTable.rows))
    return counted


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["label file", "no label file", "no dev split", "one file", "deprecated labels"]
)
def test_a_training_file_is_parsed_at_most_three_times(case, tmp_path, num_parsed):
    data = tmp_path / "data"
    data.mkdir()
    scorers = ["sparse", "names", "neighbours"]
    folders = {"registry": tmp_path / "registry", "work": tmp_path / "work"}
    longtail.train(make(data, case), **folders, scorers=scorers)
    assert NUM_DOCUMENTS <= num_parsed[0] <= 3 * NUM_DOCUMENTS


def test_what_was_read_stays_though_the_file_changes(tmp_path):
    write(tmp_path / "train.jsonl", 5)
    split = open_dataset(tmp_path).split("train")
    before = list(split)
    (tmp_path / "train.jsonl").write_text("")
    assert list(split) == before and list(split.texts()) == [x.text for x in before]
    one, other = iter(split), iter(split)  # side by side
    assert [next(one), next(one), next(other)] == [*before[:2], before[0]]
