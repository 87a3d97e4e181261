"""The demo data are what their README says."""

import gzip
import json
import re
from pathlib import Path

import pytest

from longtail.training.data.dataset import open_dataset

FOLDER = Path(__file__).parents[3] / "training" / "demo_data"


@pytest.fixture(scope="module")
def demo():
    return open_dataset(FOLDER)


@pytest.fixture(scope="module")
def readme_counts():
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \|$", (FOLDER / "README.md").read_text(), re.M)
    return {name: int(number.replace(",", "")) for name, number in rows}


def test_splits_have_the_sizes_that_the_readme_states(demo, readme_counts):
    names = {"train": "training", "dev": "development", "test": "test"}
    for split, name in names.items():
        assert demo.split(split).scan().labels.shape[0] == readme_counts[f"{name} documents"]


def test_no_document_is_in_two_splits(demo):
    ids = [document.id for split in demo.split_names for document in demo.split(split)]
    assert len(ids) == len(set(ids))


def test_stated_counts_of_the_labels_are_those_of_the_training_documents(demo):
    with gzip.open(FOLDER / "lbl.json.gz", "rt", encoding="utf-8") as lines:
        stated = [json.loads(line)["ntrn"] for line in lines]
    assert stated == demo.catalogue.training_counts.tolist()
    assert stated == sorted(stated, key=lambda count: count == 0)
