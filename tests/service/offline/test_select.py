"""`longtail select`: which documents of a file are read, and what is written of those chosen."""

from __future__ import annotations

import hashlib
import json

import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.errors import DataError
from longtail.models.predict.predictor import Predictor
from longtail.service.offline.documents import DocumentColumns
from longtail.service.offline.select import Wanted, read_documents, select_documents

TEXTS = ["imports of olive oil", "fishing quotas for herring", "milk and milk products", "zzzz"]
ANY = DocumentColumns()


@pytest.fixture
def source(tmp_path):
    def make(records, name="in.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
        return path

    return make


def digest_of(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def test_equal_texts_are_one_document_and_bad_lines_are_counted(source):
    path = source(
        [{"id": 7, "text": "a"}, {"text": "b", "labels": ["x"]}, {"no": 1}, {"text": "a"}, {}]
    )
    seen: list[int] = []
    found = read_documents(path, ANY, progress=seen.append)
    assert [(x.index, x.id, x.text, x.copies) for x in found.kept] == [
        (0, 7, "a", 2), (1, None, "b", 1),
    ]  # fmt: skip
    assert (found.num_read, found.num_left_out, found.num_errors) == (3, 0, 2)
    assert found.first_error.startswith("the one with index 2: ")
    assert sum(seen) == path.stat().st_size


@pytest.mark.parametrize("limit", [1, 7, 30, 60])
def test_of_too_many_texts_those_with_the_smallest_hashes_are_kept(source, limit):
    texts = [f"text {i % 40}" for i in range(100)]
    expected = sorted(set(texts), key=digest_of)[:limit]
    for order in (texts, texts[::-1]):
        found = read_documents(source({"text": x} for x in order), ANY, limit)
        assert {x.text for x in found.kept} == set(expected)
        assert [x.index for x in found.kept] == sorted(order.index(x) for x in expected)
        assert {x.copies for x in found.kept} <= {2, 3}
        assert found.num_left_out == sum(x not in expected for x in texts)


def test_a_file_without_documents_is_refused(source):
    with pytest.raises(DataError, match=r"none of the 1 documents .* can be used; the first"):
        read_documents(source([{"no": 1}]), ANY)
    with pytest.raises(DataError, match="none of the 0 documents"):
        read_documents(source([]), ANY)


def test_what_is_written_says_why(trained_sparse, source):
    predictor = Predictor.of_bundle(trained_sparse.bundle)
    documents = read_documents(source({"id": i, "text": x} for i, x in enumerate(TEXTS)), ANY).kept
    found = select_documents(predictor, documents, Wanted(10, 0.5, "sparse"), num_threads=1)
    assert [x["rank"] for x in found] == list(range(1, len(found) + 1))
    assert {x["text"] for x in found} <= set(TEXTS[:3])  # the model knows no word of the last one
    assert {x["chosen_for"] for x in found} <= {"gain", "rare_labels"}
    for each in found:
        (prediction,) = predictor.predict([each["text"]], k=5, scorer="sparse")
        assert [x["id"] for x in each["labels"]] == [x.id for x in prediction.labels]
        assert each["text"] == TEXTS[each["id"]] and each["id"] == each["index"]
        assert all(x["training_count"] < 10 for x in each["rare_labels"])
        if each["nearest_chosen"] is not None:
            before = [x["index"] for x in found[: each["rank"] - 1]]
            assert each["nearest_chosen"]["index"] in before


def test_the_command_writes_the_same_file_every_time(trained_sparse, source, tmp_path):
    path = source({"headline": x} for x in TEXTS)
    words = [
        "select", str(path), "--registry", str(trained_sparse.registry.folder), "-n", "2",
        "--text-columns", "headline", "--output", str(tmp_path / "out.jsonl"), "--num-threads", "1",
    ]  # fmt: skip
    done = CliRunner().invoke(longtail.app, words)
    assert done.exit_code == 0, done.output
    assert "2 of 4 documents chosen" in done.output
    first = (tmp_path / "out.jsonl").read_text()
    assert len(first.splitlines()) == 2
    assert CliRunner().invoke(longtail.app, words).exit_code == 1  # it is there already
    assert CliRunner().invoke(longtail.app, [*words, "--overwrite"]).exit_code == 0
    assert (tmp_path / "out.jsonl").read_text() == first


def test_texts_that_teach_nothing_or_were_not_drawn_are_told(trained_sparse, source, tmp_path):
    path = source([{"text": x} for x in TEXTS] + [{"no": 1}])
    words = ["select", str(path), "--registry", str(trained_sparse.registry.folder)]
    done = CliRunner().invoke(longtail.app, [*words, "--output", str(tmp_path / "all.jsonl")])
    assert done.exit_code == 0, done.output
    assert "1 texts would add nothing" in done.output
    assert "1 lines could not be used; the first: the one with index 4" in done.output
    done = CliRunner().invoke(
        longtail.app, [*words, "--output", str(tmp_path / "some.jsonl"), "--pool", "3"]
    )
    assert "1 documents were not looked at: 3 texts were drawn" in done.output
