"""Documents of dev and test whose text is in another split: left out, or refused."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from longtail.models.corpus.columns import CorpusOptions
from longtail.models.errors import DataError
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.overlap import with_splits_apart


def corpus(folder: Path, **splits: Iterable[tuple[str, str]]) -> Dataset:
    """Write pairs of an id and a text as the documents of each split."""
    for name, documents in splits.items():
        lines = (json.dumps({"id": x, "text": y, "labels": ["l"]}) + "\n" for x, y in documents)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return open_dataset(folder)


def numbered(first: int, last: int, name: str = "d") -> list[tuple[str, str]]:
    return [(f"{name}{row}", f"text {row}") for row in range(first, last)]


def test_few_documents_that_an_earlier_split_has_are_left_out_and_counted(tmp_path, caplog):
    dev = [*numbered(100, 200), ("x", "text  1"), ("y", "text 2 ")]
    test = [*numbered(200, 300), ("z", "text 1"), ("v", "text 100")]
    found = with_splits_apart(corpus(tmp_path, train=numbered(0, 100), dev=dev, test=test))
    assert list(found.split("dev").texts()) == [text for _, text in numbered(100, 200)]
    assert list(found.split("test").texts()) == [text for _, text in numbered(200, 300)]
    assert "2 of 102 documents of dev have the text of a document of train" in caplog.text
    assert with_splits_apart(found) is found


@pytest.mark.parametrize("num_shared", [6, 100])
def test_a_dev_split_that_lies_in_train_is_refused(num_shared, tmp_path):
    dev = [*numbered(0, num_shared), *numbered(100, 200 - num_shared)]
    dataset = corpus(tmp_path, train=numbered(0, 100), dev=dev)
    with pytest.raises(DataError, match=rf"{num_shared} of 100 documents of dev have the text"):
        with_splits_apart(dataset)


def test_in_a_file_that_is_divided_by_ids_equal_texts_are_left_out_in_any_number(tmp_path):
    documents = [(f"d{row}", f"text {row % 1500}") for row in range(2000)]
    corpus(tmp_path, all=documents)
    found = with_splits_apart(open_dataset(tmp_path / "all.jsonl"))
    train, dev, test = (found.split(name).scan().texts for name in ("train", "dev", "test"))
    assert not np.isin(test, [*train, *dev]).any() and not np.isin(dev, train).any()


def test_documents_of_a_group_are_in_one_split(tmp_path):
    lines = (
        {"id": f"d{row}", "who": f"p{row // 3}", "text": f"text {row}", "labels": ["l"]}
        for row in range(900)
    )
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dataset = open_dataset(tmp_path / "all.jsonl", CorpusOptions(group_column="who"))
    groups = [{x.group for x in dataset.split(name)} for name in ("train", "dev", "test")]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 300
