"""Journals that only grow, also where the file may only be appended to."""

import json
import os
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator

from longtail.models.errors import DataError, FileContentError
from longtail.models.files import durable
from longtail.models.files.durable import append_entry, read_entries
from longtail.models.files.rows import CsvTable, find_header
from longtail.models.files.typed_json import problem_in_words


def entries(path):
    return [entry["n"] for entry in read_entries(path, "n", "no entry")]


def test_a_line_torn_at_any_byte_is_left_out_and_the_file_only_grows(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")  # as after `chattr +a`

    path = tmp_path / "log.jsonl"
    append_entry(path, {"n": 1})
    whole = path.read_bytes()
    torn = json.dumps({"at": "2026-01-01", "n": "ä (cut off)"}, ensure_ascii=False).encode()
    monkeypatch.setattr(os, "ftruncate", refused)
    for cut in range(1, len(torn) + 1):
        path.write_bytes(whole + torn[:cut])
        assert entries(path) == [1]
        append_entry(path, {"n": 2})
        append_entry(path, {"n": 3})
        assert path.read_bytes().startswith(whole + torn[:cut])
        assert entries(path) == [1, 2, 3]


def test_a_mark_that_is_torn_itself_is_marked_again(tmp_path):
    path = tmp_path / "log.jsonl"
    for end in range(1, len(" (cut off)") + 1):
        path.write_bytes(b'{"at": "20' + b" (cut off)"[:end])
        append_entry(path, {"n": 1})
        assert entries(path) == [1]


def test_a_damaged_line_is_no_torn_one(tmp_path):
    path = tmp_path / "log.jsonl"
    for line in (b'{"at": "20\n', b"other (cut off)\n"):
        path.write_bytes(line)
        append_entry(path, {"n": 1})
        with pytest.raises(FileContentError, match="line 1"):
            entries(path)


def test_to_append_reads_one_byte_of_a_long_journal(tmp_path, monkeypatch):
    path, real, read = tmp_path / "log.jsonl", durable.read_at, []

    def counted(handle, buffer, position):
        read.append(len(buffer))
        return real(handle, buffer, position)

    monkeypatch.setattr(durable, "read_at", counted)
    for number in range(100):
        append_entry(path, {"n": number})
    assert max(read) == 1 and entries(path) == [*range(100)]


def test_what_excel_puts_around_a_table_is_passed_over(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('sep=;\nText;Labels;;\n"Fish\nand cod";fish;;\nOil;oil;;\nbad;row\n;;;\n')
    columns = (("text",), ("labels",))
    table = CsvTable(path, columns)
    assert table.header.names == ("text", "labels", "", "")
    rows = list(table.rows())
    assert [(number, row["text"], row["labels"]) for number, row in rows[:2]] == [
        (3, "Fish\nand cod", "fish"),
        (5, "Oil", "oil"),
    ]
    (number, bad), *others = rows[2:]
    assert (number, others) == (6, [])
    assert bad.reason.startswith("2 cells; expected 4, as in the header; put a text with")


def test_a_quote_that_is_never_closed_does_not_swallow_the_rest(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,labels\nFish,fish\n"Oil,oil\n' + "Cod,cod\n" * 50)
    with pytest.raises(DataError, match="line 3: a quote is opened here and never closed"):
        list(CsvTable(path, (("text",), ("labels",))).rows())


COLUMNS = (("labels",), ("text", "title"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_that_gives_the_columns_is_taken(delimiter):
    header = find_header([f"text{delimiter}labels\n", "a;b,c\td,e"], COLUMNS)
    assert (header.delimiter, header.names) == (delimiter, ("text", "labels"))


@pytest.mark.parametrize("first", ["Text,TEXT,labels\n", "text,TEXT,labels\n", "name,labels\n"])
def test_columns_that_are_missing_or_twice_are_refused(first):
    with pytest.raises(DataError, match="expected 'labels', 'text' or 'title' among them, each"):
        find_header([first], COLUMNS)


class Inner(BaseModel):
    x: int


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    count: int = Field(1, ge=1, le=9)
    share: float = Field(0.5, gt=0, lt=1)
    finite: FiniteFloat = 0
    name: str = Field("name", min_length=2, max_length=5, pattern="^[a-z]+$")
    is_on: bool = True
    kind: Literal["one", "two"] = "one"
    items: Annotated[list[str], Field(min_length=1, max_length=2)] = ["a"]
    table: dict[str, int] = {}
    inner: Inner = Inner(x=1)
    even: int = 0

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd; give an even one")
        return value


def words_of(content: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Shape.model_validate(content)
    (problem,) = caught.value.errors()
    return problem_in_words(problem)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"count": "5"}, 'got "5"; expected a whole number'),
        ({"count": "a secret"}, "got a string of length 8; expected a whole number"),
        ({"count": 0}, "got 0; expected at least 1"),
        ({"finite": float("inf")}, "got Infinity; expected a finite number"),
        ({"name": None}, "got null; expected a string"),
        ({"is_on": 1}, "got 1; expected true or false"),
        ({"kind": "three"}, "got \"three\"; expected 'one' or 'two'"),
        ({"items": []}, "got a list of length 0; expected 1 or more items"),
        ({"inner": {}}, "missing; add it"),
        ({"cuont": 1}, "unknown; remove it, or correct its name"),
        ({"even": 3}, "3 is odd; give an even one"),
    ],
)
def test_a_problem_says_what_came_and_what_was_expected(content, words):
    assert words_of(content) == words
