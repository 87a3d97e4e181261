"""`longtail inspect`: what is counted, shown and suspected, against plain counts."""

import json
from collections import Counter
from pathlib import Path

import numpy as np

from longtail.models.corpus.columns import CorpusOptions
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.reports import training_cost
from longtail.training.reports.inspection import Inspection, inspect_dataset
from longtail.training.reports.inspection_text import write_inspection

ODD = {
    "train": [
        ("first text here", ["Books", "a|b"]),
        ("second", ["books", "c"]),
        ("first text here", ["c"]),
        ("nothing", []),
        (" ", ["c"]),
    ],
    "test": [("second", ["c"]), ("new words", ["unseen"]), ("", ["c"])],
}


def write(folder: Path, splits: dict[str, list[tuple[str, list[str]]]]) -> Path:
    for name, documents in splits.items():
        lines = (
            json.dumps({"id": f"{name} {row}", "text": text, "labels": labels}) + "\n"
            for row, (text, labels) in enumerate(documents)
        )
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


def inspected(folder: Path) -> Inspection:
    return inspect_dataset(open_dataset(folder, CorpusOptions(skip_bad=True)))


def test_the_forecast_is_of_what_the_installed_packages_can_train(tiny_corpus, monkeypatch):
    for is_there, way in ((True, "with the encoder as it comes:"), (False, "without an encoder:")):
        monkeypatch.setattr(training_cost, "is_packaged_installed", lambda found=is_there: found)
        said = training_cost.forecast(TrainingConfig(), open_dataset(tiny_corpus))
        assert said.startswith(f"Trains {way} ")


def test_only_the_owner_can_read_what_quotes_documents(tiny_corpus, tmp_path):
    paths = write_inspection(inspected(tiny_corpus), tmp_path / "found")
    assert [path.stat().st_mode & 0o777 for path in paths[:2]] == [0o600, 0o600]
    assert (tmp_path / "found").stat().st_mode & 0o777 == 0o700


def test_counts_are_those_of_the_documents(tiny_corpus, tiny_texts):
    found = inspected(tiny_corpus)
    for name, documents in tiny_texts.items():
        split = found.splits[name]
        lengths = sorted(len(x["text"]) for x in documents)
        assert split.num_documents == len(documents)
        assert split.labels_a_document == np.mean([len(x["labels"]) for x in documents])
        assert (split.lengths["shortest"], split.lengths["longest"]) == (lengths[0], lengths[-1])
        assert split.lengths["median"] == int(np.median(lengths))
    trained = Counter(label for x in tiny_texts["train"] for label in x["labels"])
    counts = sorted(trained.values(), reverse=True)
    assert found.training_counts[: len(counts)].tolist() == counts
    assert not found.training_counts[len(counts) :].any()
    assert found.bands == {
        "0": found.num_labels - len(counts),
        "1": counts.count(1),
        "2-9": sum(2 <= count <= 9 for count in counts),
        "10-99": sum(10 <= count <= 99 for count in counts),
        "100+": 0,
    }


def test_what_is_suspicious_is_told(tmp_path):
    told = "\n".join(inspected(write(tmp_path, ODD)).oddities)
    for said in (
        "train: 1 of 4 documents have no label",
        "train: 1 of 4 documents have the text of an earlier one",
        "train: 1 line with an empty text: train.jsonl, line 5: empty text",
        "test: 1 line with an empty text: test.jsonl, line 3",
        "1 texts of test are in train too, which makes measuring too easy",
        "1 groups of labels differ only in case, spaces or Unicode form: Books = books",
        "1 labels contain a vertical bar: 'a|b'; are they several each?",
        "test: 1 labels of its documents have no training document",
    ):
        assert said in told


# The command.
