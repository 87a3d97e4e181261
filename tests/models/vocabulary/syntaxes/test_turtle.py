"""The fast reader of Turtle: what rdflib reads, cut anywhere, and what is told of what is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from rdflib import Graph

from longtail.models.errors import DataError
from longtail.models.vocabulary.facts import Facts
from longtail.models.vocabulary.reading import read_vocabulary
from longtail.models.vocabulary.syntaxes import turtle
from longtail.models.vocabulary.syntaxes.turtle import BeyondTurtleError, read_turtle

HEAD = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix ex: <http://example.org/> .
"""


def written(folder: Path, text: str, name: str = "v.ttl") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(DataError) as caught:
        read_turtle(written(folder, HEAD + text), {})
    assert not isinstance(caught.value, BeyondTurtleError)
    return str(caught.value)


@pytest.mark.parametrize("block", [1, 40, 2**20])
def test_any_style_reads_as_rdflib_reads_it(tmp_path, monkeypatch, made_up, without_rdflib, block):
    monkeypatch.setattr(turtle, "_BLOCK_BYTES", block)
    for seed in range(150):
        rng = made_up.seeded(seed)
        text = made_up.random_turtle(rng, made_up.random_graph(rng))
        made_up.check_same(
            read_vocabulary(written(tmp_path, text)), Graph().parse(data=text, format="turtle")
        )


def test_what_rdflib_writes_reads_as_it_was(tmp_path, made_up, without_rdflib):
    for seed in range(100):
        graph = made_up.random_graph(made_up.seeded(seed))
        path = tmp_path / "v.ttl.gz"
        path.write_bytes(gzip.compress(graph.serialize(format="turtle").encode()))
        made_up.check_same(read_vocabulary(path), graph)


def test_a_prefix_may_change_its_meaning(tmp_path) -> None:
    facts: Facts = {}
    text = HEAD + 'ex:a skos:prefLabel "1" .\n@prefix skos: <urn:x#> .\nex:a skos:prefLabel "2" .'
    read_turtle(written(tmp_path, text), facts)
    assert facts == {"http://example.org/a": [("names", "1", "")]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('ex:a skos:prefLabel "x" ex:b .', "line 3: expected ';', ',' or '.'; got 'ex:b .'"),
        ('\n\nex:a skos:prefLabel\n "x', "line 6: expected an IRI, a prefixed name or a text"),
        ('ex:a skos:prefLabel "x" ,\n  .', "line 4: expected an IRI, a prefixed name or a text"),
        ("ex:a 'x' .", "line 3: expected a predicate and an object, or '.'; got \"'x' .\""),
        ("ex:a a ex:b ;\n no:b 'x' .", "line 4: the prefix 'no:' is not declared; declare it"),
        ("ex:a skos:prefLabel 'x'", "got the end of the file: is it cut off?"),
        ("ex:a skos:prefLabel 'a\\q' .", "line 3: unknown escape '\\\\q'"),
        ("ex:a skos:prefLabel 'a\\U00110000' .", "line 3: unknown escape"),
        ("ex:a skos:prefLabel 'a\\ud83d' .", "half of a surrogate pair"),
        ("<a> skos:prefLabel 'a' .", "line 3: the IRI 'a' is relative; write it in full"),
        ("%%", "line 3: expected a statement or @prefix; got '%%'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, text, words) -> None:
    assert words in refusal(tmp_path, text)


def test_both_halves_of_a_surrogate_pair_are_one_character(tmp_path) -> None:
    facts: Facts = {}
    read_turtle(written(tmp_path, HEAD + r"ex:a skos:prefLabel '\ud83d\ude00' ."), facts)
    assert facts["http://example.org/a"] == [("names", "😀", "")]


def test_a_wrong_place_far_from_the_end_is_told_before_all_is_read(tmp_path, monkeypatch) -> None:
    good = 'ex:a skos:altLabel "x" .\n'
    monkeypatch.setattr(turtle, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(turtle, "_LOOK_AHEAD", 1000)
    text = good * 3 + "ex:a what? .\n" + good * 1000
    assert "line 6: expected" in refusal(tmp_path, text)


def test_text_that_is_not_utf_8_is_told_with_its_line(tmp_path) -> None:
    path = tmp_path / "v.ttl"
    path.write_bytes(HEAD.encode() + b'ex:a skos:prefLabel "\xe9" .')
    with pytest.raises(DataError, match=r"v\.ttl, line 3: not UTF-8 \(byte 0xe9\)"):
        read_turtle(path, {})


@pytest.mark.parametrize(
    "text",
    [
        "ex:a skos:definition [ ex:v 'x' ] .",
        "[ a ex:b ] skos:prefLabel 'x' .",
        "ex:a ex:b ( ex:c ) .",
        "<< ex:a ex:b ex:c >> ex:d ex:e .",
    ],
)
def test_what_only_a_full_parser_reads_is_told_apart(tmp_path, text) -> None:
    with pytest.raises(BeyondTurtleError, match="line 3"):
        read_turtle(written(tmp_path, HEAD + text), {})


def test_a_file_with_lists_is_read_all_the_same(tmp_path) -> None:
    plain = 'ex:a skos:prefLabel "A"@en ; skos:broader ex:b . ex:b skos:prefLabel "B"@en .'
    odd = f"{plain}\nex:a skos:definition [ ex:v 'x' ] ; ex:list ( ex:a 'b' ) ."
    expected = read_vocabulary(written(tmp_path, HEAD + plain))
    assert read_vocabulary(written(tmp_path, HEAD + odd, "odd.ttl")) == expected
