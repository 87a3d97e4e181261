"""The reader of N-Triples: what rdflib reads, and each bad line with its number."""

from __future__ import annotations

import gzip

import pytest

from longtail.models.errors import DataError
from longtail.models.vocabulary.facts import Facts
from longtail.models.vocabulary.reading import read_vocabulary
from longtail.models.vocabulary.syntaxes.ntriples import read_ntriples

NAME = "<http://www.w3.org/2004/02/skos/core#prefLabel>"


def test_random_graphs_read_as_they_were(tmp_path, made_up, without_rdflib) -> None:
    path = tmp_path / "v.nt.gz"
    for seed in range(200):
        graph = made_up.random_graph(made_up.seeded(seed))
        text = graph.serialize(format="nt", encoding="utf-8")
        path.write_bytes(gzip.compress(text))
        made_up.check_same(read_vocabulary(path), graph)


def test_spaces_comments_escapes_and_blank_lines(tmp_path) -> None:
    path = tmp_path / "v.nt"
    skos = NAME.removesuffix("prefLabel>")
    path.write_bytes(
        f'<u:a>{NAME}"a\\u00e9 \\"\\\\"@en-GB.# end\r\n\n  # comment\n'
        f"\t_:b\t{skos}broader>\t<u:\\u00e9>\t.\n"
        f'<u:a> {skos}\\u0061ltLabel> "b"^^<u:t> .\n'
        f'<u:a> <u:other> "ignored" .'.encode()
    )
    facts: Facts = {}
    read_ntriples(path, facts, 5)
    assert facts == {
        "u:a": [("names", 'aé "\\', "en-gb"), ("other_names", "b", "")],
        "_:b": [("broader", "u:é", None)],
    }


BAD = {
    "<u:a> <u:b> .": "is no statement; expected '<subject> <predicate> <object> .'",
    '<u:a> <u:b> "cut': "and it doesn't end with '.': is it cut off?",
    '<u:a> <u:b> "a" . <u:c> <u:d> "e" .': "is no statement",
    '"a" <u:b> <u:c> .': "is no statement",
    "<u:a> _:b <u:c> .": "is no statement",
    "<u:a b> <u:c> <u:d> .": "is no statement",
    f'<u:a> {NAME} "\\x" .': "unknown escape '\\\\x'",
    f'<u:a> {NAME} "\\uD800" .': "half of a surrogate pair",
    f'<a> {NAME} "x" .': "the IRI 'a' is relative",
    "<< <u:a> <u:b> <u:c> >> <u:d> <u:e> .": "is no statement",
}


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_told_with_its_number_and_reason(tmp_path, line) -> None:
    path = tmp_path / "v.nt"
    path.write_text(f'<u:a> {NAME} "good" .\n{line}\n<u:a> {NAME} "good" .\n')
    with pytest.raises(DataError) as caught:
        read_ntriples(path, {}, 5)
    assert "1 lines are no N-Triples" in str(caught.value)
    assert "v.nt, line 2: " in str(caught.value) and BAD[line] in str(caught.value)


def test_all_bad_lines_are_counted_and_the_first_are_listed(tmp_path) -> None:
    path = tmp_path / "v.nt"
    path.write_bytes(b"?\n" * 7 + b'<u:a> <u:b> "\xff" .')
    with pytest.raises(DataError, match=r"8 lines are no N-Triples(.|\n)*and 6 more"):
        read_ntriples(path, {}, 2)
    path.write_bytes(b'<u:a> <u:b> "\xff" .')
    with pytest.raises(DataError, match=r"line 1: not UTF-8 \(byte 0xff\)"):
        read_ntriples(path, {}, 2)
