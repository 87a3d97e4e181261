"""What is to be used instead of a concept, as vocabularies say it."""

from pathlib import Path

import pytest

from longtail.models.vocabulary.concept import ntriples_lines, turtle_lines
from longtail.models.vocabulary.reading import read_vocabulary

TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix ex: <http://example.org/> .
ex:a a skos:Concept ; skos:prefLabel "a" .
ex:b a skos:Concept ; skos:prefLabel "b" ; skos:exactMatch ex:a .
ex:c a skos:Concept ; owl:deprecated true ; dct:isReplacedBy ex:b, ex:a, ex:c, ex:elsewhere ;
    skos:exactMatch ex:d .
ex:d a skos:Concept ; owl:deprecated true ; skos:exactMatch ex:c, ex:b, <urn:x> .
ex:e a skos:Concept ; dct:isReplacedBy ex:a, "ex:b" .
ex:f a skos:Concept ; owl:deprecated false ; skos:exactMatch ex:a .
"""
BASE = "http://example.org/"


@pytest.fixture
def path(tmp_path):
    (tmp_path / "v.ttl").write_text(TURTLE)
    return tmp_path / "v.ttl"


def replacements(path: Path) -> dict[str, tuple[str, ...]]:
    concepts = read_vocabulary(path).concepts
    return {
        x.id.removeprefix(BASE): tuple(each.removeprefix(BASE) for each in x.replaced_by)
        for x in concepts
        if x.replaced_by
    }


def test_only_a_deprecated_concept_is_replaced_by_what_it_matches(path):
    """And only by a concept in use; dcterms:isReplacedBy says it of any."""
    assert replacements(path) == {"c": ("a", "b"), "d": ("b",), "e": ("a",)}


def test_replacements_are_written_and_read_again(path):
    vocabulary = read_vocabulary(path)
    for suffix, lines in ((".nt", ntriples_lines), (".ttl", turtle_lines)):
        written = path.with_suffix(suffix)
        written.write_text("\n".join(lines(vocabulary)))
        assert read_vocabulary(written).concepts == vocabulary.concepts
