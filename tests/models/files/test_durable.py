"""Journals that only grow, also where the file may only be appended to."""

import json
import os

import pytest

from longtail.models.errors import FileContentError
from longtail.models.files import durable
from longtail.models.files.durable import append_entry, read_entries


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
