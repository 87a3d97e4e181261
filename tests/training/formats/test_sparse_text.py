"""Sparse matrices as text, against a naive reader of one line."""

from __future__ import annotations

import gzip
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from models.errors import DataError
from training.formats import text_files
from training.formats.bad_lines import Problem
from training.formats.csr_builder import SparseRows, digests_of_rows
from training.formats.xmc_text import SparseLines, read_header, read_lines, write_sparse_text

NUM_FEATURES, NUM_LABELS = 40, 12
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def write(folder: Path, lines: list[str], *, has_labels: bool = True, end: str = "\n") -> Path:
    path = folder / "some.txt"
    header = f"{len(lines)} {NUM_FEATURES}" + f" {NUM_LABELS}" * has_labels
    path.write_bytes("".join(line + end for line in [header, *lines]).encode())
    return path


def read(path: Path, *, has_labels: bool = True) -> list[SparseLines | Problem]:
    return list(read_lines(path, read_header(path, has_labels=has_labels)))


def by_line(items: list[SparseLines | Problem]) -> dict[int, tuple | None]:
    """The labels and pairs of each line by its number; None for bad ones."""
    found: dict[int, tuple | None] = {}
    for item in items:
        if isinstance(item, Problem):
            found[item.line] = None
            continue
        ends, label_ends = np.cumsum(item.sizes), np.cumsum(item.label_sizes)
        for row, number in enumerate(item.numbers.tolist()):
            held = slice(ends[row] - item.sizes[row], ends[row])
            pairs = zip(item.columns[held].tolist(), item.values[held].tolist(), strict=True)
            carried = slice(label_ends[row] - item.label_sizes[row], label_ends[row])
            found[number] = (item.labels[carried].tolist(), list(pairs))
    return found


def naive(line: str, *, has_labels: bool) -> tuple | None:
    """What a line holds, by Python's own numbers; None if it breaks a rule."""
    tokens = re.split("[ \t]+", line)
    if not line:
        return None if has_labels else ([], [])
    labels = []
    if has_labels and tokens[0] and ":" not in tokens[0]:
        labels = tokens.pop(0).split(",")
    pairs = [token.split(":") for token in tokens if token]
    if any(len(pair) != 2 for pair in pairs):
        return None
    indices = [*labels, *(index for index, _ in pairs)]
    if not all(re.fullmatch("[0-9]+", x) and float(x) < NUM_FEATURES for x in indices):
        return None
    if not all(NUMBER.fullmatch(value) for _, value in pairs):
        return None
    with np.errstate(over="ignore"):
        values = [float(np.float32(float(value))) for _, value in pairs]
    columns = [int(float(index)) for index, _ in pairs]
    if len(set(columns)) < len(columns) or not np.isfinite(values).all():
        return None
    numbers = [int(label) for label in labels]
    if any(label >= NUM_LABELS for label in numbers):
        return None
    return numbers, list(zip(columns, values, strict=True))


def matrix_of(items: list[SparseLines | Problem]) -> csr_array:
    rows = SparseRows()
    for item in items:
        assert isinstance(item, SparseLines)
        rows.extend(item.sizes, item.columns, item.values)
    return rows.matrix(NUM_FEATURES)


# Nearly right lines: pieces that are mostly whole, so that many lines are good.
LABELS = ("1", "11", "12", "39", "40", "007", "1,2", "3,3", "1,,2")
GOOD_PAIRS = ("0:1", "7:0.25", "7:1e3", "8:-.5", "9:+2.", "3:1e-60")
BAD_PAIRS = ("5:", ":5", "1.0:2", "-1:2", "2:1e39", "4:nan", "4:inf", "4:0x1", "4:1_0", "5:1.2.3")
MORE_BAD_PAIRS = ("5:1e", "5:--1", "6:1,2", "6:1:2", "6:\x0c1", "9" * 30 + ":1")
CHARACTERS = "\t ,:.ex\r\0\x0c٣"
piece = st.sampled_from([*LABELS, *GOOD_PAIRS, *BAD_PAIRS, *MORE_BAD_PAIRS, *CHARACTERS])
line = st.builds(
    str.join, st.sampled_from(["", " "]), st.lists(piece | st.sampled_from(["1:2", "30:4"]))
)


@SAME_FOLDER
@given(st.lists(line, max_size=12), st.booleans())
@example(["", " ", "1", "1 ", "1 2:3", " 2:3", "2:3"], True)
@example(["", " ", "2:3"], False)
@example(["5:1.2.3", "6:\x0c"], False)
@example(["0" * 5000 + "1:1", "0" * 5000 + "1:1 x"], False)
def test_every_line_is_read_or_refused_as_a_naive_reader_would(tmp_path, lines, has_labels):
    path = write(tmp_path, lines, has_labels=has_labels)
    found = by_line(read(path, has_labels=has_labels))
    expected = {
        number: naive(line.removesuffix("\r"), has_labels=has_labels)
        for number, line in enumerate(lines, start=2)
    }
    assert found == expected


@st.composite
def corpora(draw) -> tuple[csr_array, csr_array]:
    num_documents = draw(st.integers(1, 6))
    value = st.floats(width=32, allow_nan=False, allow_infinity=False)
    features = np.zeros((num_documents, 5), np.float32)
    labels = np.zeros((num_documents, 4), np.float32)
    for row in range(num_documents):
        for column in draw(st.sets(st.integers(0, 4))):
            features[row, column] = draw(value)
        labels[row, list(draw(st.sets(st.integers(0, 3))))] = 1
    return csr_array(features), csr_array(labels)


@SAME_FOLDER
@given(corpora(), st.sampled_from(["all.txt", "all.txt.gz"]))
def test_what_was_written_is_read_to_the_bit(tmp_path, corpus, name):
    features, labels = corpus
    write_sparse_text(tmp_path / name, features, labels)
    found = by_line(read(tmp_path / name))
    for row in range(features.shape[0]):
        starts = slice(features.indptr[row], features.indptr[row + 1])
        pairs = zip(features.indices[starts].tolist(), features.data[starts].tolist(), strict=True)
        carried = labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()
        assert found[row + 2] == (carried, list(pairs))


def test_files_with_carriage_returns_and_a_byte_order_mark_are_read(tmp_path):
    path = write(tmp_path, ["1 2:3", " 4:5", ""], end="\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = by_line(read(path))
    assert found == {2: ([1], [(2, 3.0)]), 3: ([], [(4, 5.0)]), 4: None}


def test_the_last_line_may_lack_its_line_feed(tmp_path):
    path = write(tmp_path, ["1 2:3", "1 2:4"])
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert by_line(read(path))[3] == ([1], [(2, 4.0)])


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 10_000])
def test_blocks_of_any_size_give_the_same_lines(tmp_path, monkeypatch, block_bytes):
    lines = [f"{row % 12} {row % 40}:{row / 7:.3f}" if row % 9 else "bad" for row in range(200)]
    path = write(tmp_path, lines)
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", block_bytes)
    assert by_line(read(path)) == {
        number: naive(line, has_labels=True) for number, line in enumerate(lines, start=2)
    }


REASONS = {
    "": "blank line; a document without labels and features is a single space",
    "12 1:2": "label index '12' is out of range; wanted 0 to 11",
    "1,x,-1 1:2": "'x' is no label index; wanted 0 to 11; '-1' is no label index; wanted 0 to 11",
    " 40:1": "feature index '40' is out of range; wanted 0 to 39",
    "1 f:1": "'f' is no feature index; wanted 0 to 39",
    "1 5": "'5' is no pair; wanted feature:value",
    "1 5:": "value '' of feature '5' is no decimal number",
    "1 5:nan": "value 'nan' of feature '5' is no decimal number",
    "1 5:-inf": "value '-inf' of feature '5' is no decimal number",
    "1 5:1e39": "value '1e39' of feature '5' is too large for 32 bits",
    "1 5:1 6:2 5:3": "feature 5 occurs twice",
}


@pytest.mark.parametrize(("line", "reason"), REASONS.items())
def test_a_bad_line_is_told_with_all_that_is_wrong_with_it(tmp_path, line, reason):
    items = read(write(tmp_path, ["1 2:3", line, "1 2:3"]))
    assert [item for item in items if isinstance(item, Problem)] == [Problem(3, reason)]


HEADERS = ["", "3 4", "3 4 5 6", "3 4 x", "-3 4 5", "3 4.0 5", "3 0 5", "3 4 0", f"3 {2**31} 5"]


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_that_is_none_is_refused(tmp_path, header):
    (tmp_path / "some.txt").write_text(header + "\n1 2:3\n")
    with pytest.raises(DataError, match=r"line 1: .*wanted the numbers of documents, features and"):
        read_header(tmp_path / "some.txt", has_labels=True)


def test_an_empty_file_has_no_header(tmp_path):
    (tmp_path / "some.txt").write_bytes(b"")
    with pytest.raises(DataError, match="line 1: ''; wanted the numbers of rows and labels"):
        read_header(tmp_path / "some.txt", has_labels=False, column="label")


@pytest.mark.parametrize(("said", "what"), [(3, "3 lines, 2 follow"), (1, "1 lines, 2 follow")])
def test_another_number_of_lines_than_the_header_says_is_refused(tmp_path, said, what):
    path = tmp_path / "some.txt"
    path.write_text(f"{said} 40 12\n1 2:3\nbad\n")
    with pytest.raises(DataError, match=f"the header says {what} it; is the file whole"):
        read(path)


def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    path = write(tmp_path, ["1 " + "2:3 " * 1000])
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 100)
    with pytest.raises(DataError, match="line 2: longer than 1000 bytes"):
        read(path)


def test_a_compressed_file_that_was_cut_is_refused_by_name(tmp_path):
    path = tmp_path / "some.txt.gz"
    content = gzip.compress("".join(["9 40 12\n", *("1 2:3\n" for _ in range(9))]).encode())
    path.write_bytes(content[:-12])
    with pytest.raises(DataError, match=r"some\.txt\.gz: can't be read to its end"):
        read(path)


# Rows and their digests.


def test_rows_added_one_by_one_and_all_at_once_make_the_same_matrix():
    one_by_one, at_once = SparseRows(), SparseRows()
    for columns in ([2, 0], [], [1]):
        one_by_one.add(columns)
    at_once.extend(np.array([2, 0, 1], np.int32), np.array([2, 0, 1], np.int32))
    for rows in (one_by_one, at_once):
        assert rows.num_rows == 3
        assert rows.matrix(3).toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert SparseRows().matrix(3).shape == (0, 3)


def test_columns_of_a_row_rise_though_the_file_has_them_in_any_order(tmp_path):
    matrix = matrix_of(read(write(tmp_path, [" 7:1 3:2", "", " 1:1"][::2])))
    assert matrix.indices.tolist() == [3, 7, 1]
    assert matrix.data.tolist() == [2, 1, 1]


rows_of_pairs = st.lists(
    st.dictionaries(st.integers(0, 3), st.sampled_from([0.5, 1.0, 2.0]), max_size=3), max_size=8
)


@given(rows_of_pairs, st.randoms(use_true_random=False))
def test_digests_are_equal_just_where_rows_are(rows, random):
    shuffled = [random.sample(sorted(row.items()), len(row)) for row in rows]
    flat = [pair for row in shuffled for pair in row]
    digests = digests_of_rows(
        np.array([len(row) for row in rows], np.int32),
        np.array([column for column, _ in flat], np.int32),
        np.array([value for _, value in flat], np.float32),
    )
    order = sorted(range(len(rows)), key=lambda row: sorted(rows[row].items()))
    for one, other in pairwise(order):
        assert (digests[one] == digests[other]) == (rows[one] == rows[other])
