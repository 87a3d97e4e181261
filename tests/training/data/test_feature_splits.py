"""Corpora of the bag-of-words forms: what is read, what is refused, and what it costs."""

from __future__ import annotations

import gzip
import logging
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from models.errors import DataError
from training.data.dataset import Dataset, open_dataset
from training.formats.xmc_text import write_sparse_text

COMBINED = {
    "train.txt": "4 5 3\n0,2 1:0.5 4:2\n 0:1\n1\n2,2,0 3:1 1:1\n",
    "test.txt": "1 5 3\n2 4:1\n",
}
MATRICES = {
    "trn_X_Xf.txt": "4 5\n1:0.5 4:2\n0:1\n\n3:1 1:1\n",
    "trn_X_Y.txt": "4 3\n0:1 2:1\n\n1:1.0\n2:1 0:1\n",
    "tst_X_Xf.txt": "1 5\n4:1\n",
    "tst_X_Y.txt": "1 3\n2:1\n",
}
FEATURES = [[0, 0.5, 0, 0, 2], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]]
LABELS = [[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 0, 1]]
NAMES = {"Y.txt": "apples\nbread\n\u2028cheese\n", "Xf.txt": "a\nb\nc\nd\né\n"}


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def opened(folder: Path, files: dict, **options) -> Dataset:
    return open_dataset(write(folder, files), **options)


def refused(folder: Path, files: dict, **options) -> str:
    """The message that a corpus is refused with when all of it is read."""
    with pytest.raises(DataError) as caught:
        opened(folder, files, **options).check()
    return str(caught.value).replace(str(folder), "corpus")


SAME_CORPUS = {
    "combined": COMBINED,
    "combined, compressed": {f"{name}.gz": content for name, content in COMBINED.items()},
    "combined, carriage returns": {
        name: content.replace("\n", "\r\n") for name, content in COMBINED.items()
    },
    "matrices": MATRICES,
    "matrices, compressed": {f"{name}.gz": content for name, content in MATRICES.items()},
}


# What is read.


@pytest.mark.parametrize("files", SAME_CORPUS.values(), ids=SAME_CORPUS)
def test_every_form_gives_the_same_corpus(files, tmp_path):
    dataset = opened(tmp_path, files)
    assert (dataset.input, dataset.split_names) == ("features", ("train", "test"))
    split = dataset.split("train")
    assert split.features().toarray().tolist() == FEATURES
    assert split.scan().labels.toarray().tolist() == LABELS
    assert dataset.split("test").features().toarray().tolist() == [[0, 0, 0, 0, 1]]
    assert dataset.catalogue.training_counts.tolist() == [2, 1, 2]


@pytest.mark.parametrize("split", ["train", "test"])
def test_matrices_have_rising_indices_and_32_bits(split, tmp_path):
    split = opened(tmp_path, COMBINED).split(split)
    for matrix in (split.features(), split.scan().labels):
        assert matrix.has_canonical_format
        assert (matrix.dtype, matrix.indices.dtype) == (np.float32, np.int32)


def test_without_names_labels_and_features_are_called_by_index(tmp_path):
    dataset = opened(tmp_path, COMBINED)
    assert [(label.id, label.name) for label in dataset.labels] == [(x, x) for x in "012"]
    assert dataset.feature_names == ("0", "1", "2", "3", "4")


@pytest.mark.parametrize("files", [COMBINED, MATRICES], ids=["combined", "matrices"])
def test_names_are_read_line_by_line(files, tmp_path):
    dataset = opened(tmp_path, files | NAMES)
    assert [label.name for label in dataset.labels] == ["apples", "bread", "cheese"]
    assert [label.id for label in dataset.labels] == ["0", "1", "2"]
    assert dataset.feature_names == ("a", "b", "c", "d", "é")


def test_the_other_names_of_the_name_files_are_known(tmp_path):
    named = {"labels.txt.gz": NAMES["Y.txt"], "features.txt": NAMES["Xf.txt"]}
    dataset = opened(tmp_path, COMBINED | named)
    assert (dataset.labels[0].name, dataset.feature_names[0]) == ("apples", "a")


def test_the_fingerprint_changes_with_every_file(tmp_path):
    files = MATRICES | NAMES
    seen = {opened(tmp_path, files).fingerprint}
    for name, content in files.items():
        changed = {name: content.replace("\n", "\r\n", 1)}
        seen.add(opened(tmp_path, files | changed).fingerprint)
    assert len(seen) == 1 + len(files)


def test_a_corpus_of_features_gives_no_texts_and_one_of_texts_no_features(tmp_path):
    with pytest.raises(DataError, match=r"train\.txt: holds features, not texts; use what works"):
        opened(tmp_path, COMBINED).split("train").texts()
    (tmp_path / "text").mkdir()
    texts = opened(tmp_path / "text", {"train.jsonl": '{"text": "t", "labels": ["x"]}\n'})
    assert (texts.input, texts.feature_names) == ("text", ())
    with pytest.raises(DataError, match=r"train\.jsonl: holds texts, not features; use what works"):
        texts.split("train").features()


# Lines that can't be used.

BAD = COMBINED | {
    "train.txt": "5 5 3\n0 1:1\n3 1:1\n\n1 5:1\n2 2:1\n",
    "test.txt": "1 5 3\nx\n",
}


def test_bad_lines_of_all_splits_are_listed_at_once(tmp_path):
    message = refused(tmp_path, BAD)
    assert message.splitlines() == [
        "corpus: 4 lines can't be used; mend them, or skip them with --skip-bad",
        "  train.txt, line 3: label index '3' is out of range; wanted 0 to 2",
        "  train.txt, line 4: blank line; a document without labels and features is a single space",
        "  train.txt, line 5: feature index '5' is out of range; wanted 0 to 4",
        "  test.txt, line 2: 'x' is no label index; wanted 0 to 2",
    ]


def test_bad_lines_are_skipped_and_counted_and_the_rest_keeps_its_order(tmp_path, caplog):
    split = opened(tmp_path, BAD, skip_bad=True, max_problems=2).split("train")
    scan = split.scan()
    assert (scan.num_skipped, len(scan.problems)) == (3, 2)
    assert scan.labels.indices.tolist() == [0, 2]
    assert split.features().toarray()[:, [1, 2]].tolist() == [[1, 0], [0, 1]]
    assert "skipped 3 lines that can't be used" in caplog.text


def test_a_document_with_one_bad_line_of_two_is_skipped_in_both_matrices(tmp_path):
    files = {
        "trn_X_Xf.txt": "5 2\n0:1\n0:x\n0:3\n0:4\n0:5\n",
        "trn_X_Y.txt": "5 9\n1:1\n2:1\n9:1\n4:1\n5:x\n",
    }
    split = opened(tmp_path, files, skip_bad=True).split("train")
    scan = split.scan()
    assert (scan.labels.indices.tolist(), scan.num_skipped) == ([1, 4], 3)
    assert split.features().data.tolist() == [1, 4]
    assert [problem.split(":")[0] for problem in scan.problems] == [
        "trn_X_Xf.txt, line 3",
        "trn_X_Y.txt, line 4",
        "trn_X_Y.txt, line 6",
    ]


def test_a_split_without_a_good_line_is_refused_though_bad_ones_are_skipped(tmp_path):
    split = opened(tmp_path, BAD, skip_bad=True).split("test")
    with pytest.raises(DataError, match="1 line can't be used"):
        split.scan()


ODD = {
    "header says 4 lines, 3 follow": COMBINED | {"train.txt": "4 5 3\n0 1:1\n1 1:1\n2 1:1\n"},
    "header says 1 lines, 2 follow": MATRICES | {"tst_X_Y.txt": "1 3\n2:1\n\n"},
    "corpus/train.txt, line 1: '4 5'; wanted the numbers of documents, features and labels": (
        COMBINED | {"train.txt": "4 5\n"}
    ),
    "corpus: the headers differ in the number of features (train.txt 5, test.txt 6); wanted": (
        COMBINED | {"test.txt": "1 6 3\n2 4:1\n"}
    ),
    "the headers differ in the number of labels (train.txt 3, test.txt 4)": (
        COMBINED | {"test.txt": "1 5 4\n2 4:1\n"}
    ),
    "the headers differ in the number of labels (trn_X_Y.txt 3, tst_X_Y.txt 2)": (
        MATRICES | {"tst_X_Y.txt": "1 2\n1:1\n"}
    ),
    "the headers differ in the number of documents (tst_X_Xf.txt 1, tst_X_Y.txt 2)": (
        MATRICES | {"tst_X_Y.txt": "2 3\n1:1\n1:1\n"}
    ),
    "corpus: trn_X_Xf.txt without trn_X_Y.txt (also with .gz)": {
        "trn_X_Xf.txt": MATRICES["trn_X_Xf.txt"]
    },
    "corpus/Y.txt: 2 label names, but the headers say 3 labels; wanted the name of label i on": (
        COMBINED | {"Y.txt": "a\nb\n"}
    ),
    "corpus/Xf.txt: 6 feature names, but the headers say 5 features": (
        COMBINED | {"Xf.txt": "a\nb\nc\nd\ne\nf\n"}
    ),
    "corpus/Y.txt: 2 label names can't be used; mend them, for a label can't be skipped\n"
    "  Y.txt, line 2: blank; wanted a name\n  Y.txt, line 3: not UTF-8 (byte 0xff)": (
        COMBINED | {"Y.txt": b"a\n \n\xff\n"}
    ),
    "corpus: both Y.txt and labels.txt; keep one": COMBINED
    | {"Y.txt": "a\nb\nc\n", "labels.txt": "a\nb\nc\n"},
    "corpus: files of two formats (train.txt, test.txt, trn_X_Xf.txt": COMBINED
    | {"trn_X_Xf.txt": "1 1\n0:1\n", "trn_X_Y.txt": "1 1\n0:1\n"},
    "corpus/trn_X_Y.txt, line 4: a label of value 0; wanted 1 for each label that": (
        MATRICES | {"trn_X_Y.txt": "4 3\n0:1 2:1\n\n1:0\n2:1 0:1\n"}
    ),
    "corpus/test.txt: no documents; give at least one": COMBINED | {"test.txt": "0 5 3\n"},
}


@pytest.mark.parametrize(("reason", "files"), ODD.items(), ids=ODD)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_corpus_that_contradicts_itself_is_refused(reason, files, skip_bad, tmp_path):
    assert reason in refused(tmp_path, files, skip_bad=skip_bad)


def test_a_file_that_changes_between_scan_and_reading_is_noticed(tmp_path):
    split = opened(tmp_path, COMBINED).split("train")
    split.scan()
    write(tmp_path, {"train.txt": COMBINED["train.txt"].replace(" 0:1", "x")})
    with pytest.raises(DataError, match="had 4 good documents before and has 3 now"):
        split.features()


# Odd documents and labels are counted.


@pytest.mark.parametrize("form", ["combined", "matrices"])
def test_documents_without_labels_without_features_and_repeated_ones_are_counted(
    form, tmp_path, caplog
):
    if form == "combined":
        files = {"train.txt": "6 3 2\n0 1:1 2:2\n 1:1\n1 2:2 1:1\n \n1\n0 1:1\n"}
    else:
        files = {
            "trn_X_Xf.txt": "6 3\n1:1 2:2\n1:1\n2:2 1:1\n\n\n1:1\n",
            "trn_X_Y.txt": "6 2\n0:1\n\n1:1\n\n1:1\n0:1\n",
        }
    scan = opened(tmp_path, files).split("train").scan()
    assert (scan.num_unlabelled, scan.num_featureless, scan.num_repeats) == (2, 2, 2)
    assert (
        "of 6 documents, 2 have no label, 2 have no feature, "
        "2 have the text or the features of an earlier one" in caplog.text
    )


def test_labels_without_training_documents_are_counted(tmp_path, caplog):
    files = COMBINED | {"train.txt": "2 5 3\n1 1:1\n1 2:1\n"}
    assert opened(tmp_path, files).catalogue.training_counts.tolist() == [0, 2, 0]
    assert "2 of 3 labels have no training document" in caplog.text
    assert caplog.records[-1].levelno == logging.WARNING


def test_a_filter_of_label_pairs_is_told_to_be_left_alone(tmp_path, caplog):
    opened(tmp_path, COMBINED | {"filter_labels_test.txt": "0 1\n"})
    assert "filter_labels_test.txt is not applied" in caplog.text


# What it costs.


def test_memory_is_bounded_by_the_matrices_not_by_the_text(tmp_path):
    rng = np.random.default_rng(0)
    shape = (20_000, 500)
    columns = rng.integers(0, 20, (shape[0], 25)).cumsum(axis=1) + np.arange(25)
    values = rng.random(columns.size).astype(np.float32)
    starts = np.arange(0, columns.size + 1, 25)
    features = csr_array((values, columns.ravel(), starts), shape=shape)
    labels = csr_array((np.ones(shape[0], np.float32), np.arange(shape[0]) % 9, starts // 25))
    write_sparse_text(tmp_path / "train.txt", features, labels)
    split = open_dataset(tmp_path).split("train")
    tracemalloc.start()
    split.scan()
    scanned_bytes = tracemalloc.get_traced_memory()[1]
    found = split.features()
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found != features).nnz == 0
    assert (tmp_path / "train.txt").stat().st_size > 7_000_000
    assert scanned_bytes < 10_000_000  # most of it for the megabyte of text that is parsed at once
    assert peak_bytes < 10_000_000 + 1.2 * 8 * columns.size
