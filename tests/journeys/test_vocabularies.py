"""A person with a vocabulary: what is in it, other forms of it, and labels for a model."""

from __future__ import annotations

import json

import pytest

TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix ex: <http://example.org/> .
ex:fish a skos:Concept ; skos:prefLabel "fish"@en, "kala"@fi ; skos:altLabel "fishes"@en .
ex:eel a skos:Concept ; skos:prefLabel "eel"@en ; skos:broader ex:fish ; skos:notation "1.2" .
ex:old a skos:Concept ; skos:prefLabel "old"@en ;
    <http://www.w3.org/2002/07/owl#deprecated> true .
"""


@pytest.fixture
def vocabulary(place) -> None:
    (place / "v.ttl").write_text(TURTLE)


@pytest.mark.usefixtures("vocabulary")
def test_show_tells_numbers_and_what_may_be_wrong(run, place) -> None:
    shown = run("vocabulary", "show", "v.ttl")
    assert shown.status == 0
    assert "concepts:        3, 1 of them deprecated" in shown.out
    assert "levels:          2" in shown.out and "May be wrong" not in shown.out
    (place / "twice.tsv").write_text("<u:a>\tx\n<u:b>\tx\n")
    assert "1 names are those of several" in run("vocabulary", "show", "twice.tsv").out
    found = json.loads(run("vocabulary", "show", "v.ttl", "--json").out)
    assert found["num_concepts"] == 3 and list(found["languages"]) == ["en", "fi"]


@pytest.mark.usefixtures("vocabulary")
def test_convert_writes_labels_that_a_model_takes(run, place) -> None:
    assert run("vocabulary", "convert", "v.ttl", "l.jsonl", "--language", "fi").status == 0
    labels = [json.loads(line) for line in (place / "l.jsonl").read_text().splitlines()]
    assert [label["name"] for label in labels] == ["eel", "kala"]
    assert labels[0]["broader"] == ["http://example.org/fish"]
    assert run("vocabulary", "convert", "v.ttl", "l.csv", "--keep-deprecated").status == 0
    assert len((place / "l.csv").read_text().splitlines()) == 4
    assert run("vocabulary", "convert", "v.ttl", "l.tsv").status == 0
    tsv = "<http://example.org/eel>\teel\t1.2\n<http://example.org/fish>\tfish\n"
    assert (place / "l.tsv").read_text() == tsv


@pytest.mark.usefixtures("vocabulary")
def test_convert_to_another_syntax_loses_nothing(run) -> None:
    before = run("vocabulary", "show", "v.ttl", "--json").out
    for name in ("w.nt", "w.ttl"):
        assert run("vocabulary", "convert", "v.ttl", name).out == f"Written: {name}\n"
        assert run("vocabulary", "show", name, "--json").out == before


@pytest.mark.usefixtures("vocabulary")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("v.ttl", "v.ttl"), "is the input"),
        (("v.ttl", "l.txt"), "no form by its name; expected the end .jsonl, .csv, .tsv, .nt, .ttl"),
        (("v.ttl", "l.nt", "--language", "fi"), "leave out --language and --keep-deprecated"),
        (("v.ttl", "l.csv", "--language", "de"), "no concept has a name in the language 'de'"),
        (("binary", "l.csv"), "no vocabulary by its name"),
        (("none.ttl", "l.csv"), "none.ttl': can't be read"),
    ],
)
def test_what_can_not_be_converted_is_told_and_nothing_is_written(run, place, words, told) -> None:
    before = set(place.iterdir())
    outcome = run("vocabulary", "convert", *words)
    assert outcome.status == 1 and told in outcome.last_line
    assert set(place.iterdir()) == before


@pytest.mark.usefixtures("vocabulary")
def test_a_result_that_is_there_stays_unless_it_may_be_replaced(run, place) -> None:
    (place / "l.csv").write_text("mine")
    assert "is there already" in run("vocabulary", "convert", "v.ttl", "l.csv").last_line
    assert (place / "l.csv").read_text() == "mine"
    assert run("vocabulary", "convert", "v.ttl", "l.csv", "--overwrite").status == 0
