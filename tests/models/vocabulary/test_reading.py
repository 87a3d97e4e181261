"""Any form of a vocabulary gives equal concepts; what can't be read is refused."""

import json
import random
import socket
from pathlib import Path

import pyoxigraph
import pytest

from longtail.models.vocabulary.concept import (
    CONCEPT,
    Concept,
    ConceptVocabulary,
    Facts,
    ntriples_lines,
    turtle_lines,
)
from longtail.models.vocabulary.inspection import hierarchy_of
from longtail.models.vocabulary.reading import assemble, is_vocabulary_file, read_vocabulary
from tests.models.vocabulary.conftest import refusal, written

SKOS = "http://www.w3.org/2004/02/skos/core#"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
CHARACTERS = "aZ09 ._-~:;,#@<>[](){}\\\"'\n\t\ré日本\u200f😀&"
TURTLE = f"""@prefix skos: <{SKOS}> . @prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix : <http://example.org/> .
"""


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


NTRIPLES = f"""<u:a> <{TYPE}> <{SKOS}Concept> .  # comment

<u:a> <{SKOS}prefLabel> "Tulva \\"\\u00e4\\"\\n"@fi-FI .
<u:a> <{SKOS}altLabel> "flood\\uD83D\\uDE00" .
<u:a> <{SKOS}hiddenLabel> "a b"@en .
<u:a> <{SKOS}notation> "007"^^<http://www.w3.org/2001/XMLSchema#integer> .
<u:a> <{SKOS}definition> <u:text> .
<u:a> <{SKOS}broader> <u:b c> .
<u:b c> <{SKOS}prefLabel> "B"@en .
<u:b c> <http://www.w3.org/2002/07/owl#deprecated> "true"^^<u:boolean> .
_:c <{TYPE}> <{SKOS}Concept> .
<u:a> <u:other> _:c .
<u:a> <{SKOS}inScheme> <u:scheme> .
<u:scheme> <{TYPE}> <{SKOS}ConceptScheme> .
<u:scheme> <{SKOS}prefLabel> "all" .
"""
CONCEPTS = (
    Concept(
        "u:a", {"fi-fi": 'Tulva "ä"'}, {"": ("flood😀",)}, {"en": ("a b",)}, ("007",),
        broader=("u:b c",), scheme=("u:scheme",),
    ),
    Concept("u:b c", {"en": "B"}, narrower=("u:a",), is_deprecated=True),
)  # fmt: skip
FORMS = {"v.nt": "N_TRIPLES", "v.ttl": "TURTLE", "v.rdf": "RDF_XML", "v.jsonld": "JSON_LD"}


@pytest.mark.parametrize("pack", ["", ".gz"])
@pytest.mark.parametrize("name", FORMS)
def test_all_syntaxes_give_equal_vocabularies(tmp_path, no_network, name, pack):
    source = NTRIPLES.encode()
    quads = pyoxigraph.parse(source, pyoxigraph.RdfFormat.N_TRIPLES, lenient=True)
    form = getattr(pyoxigraph.RdfFormat, FORMS[name])
    text = NTRIPLES if name == "v.nt" else pyoxigraph.serialize(quads, format=form).decode()
    vocabulary = read_vocabulary(written(tmp_path, text, name + pack))
    assert vocabulary.concepts == CONCEPTS
    assert vocabulary.left_out.concepts_without_uri == 1


def test_what_is_written_reads_as_it_was(tmp_path):
    rng = random.Random(1)  # noqa: S311

    def texts() -> tuple[str, ...]:
        drawn = {"".join(rng.choices(CHARACTERS, k=4)) for _ in range(3)}
        return tuple(sorted(f"x{text}x" for text in drawn))

    for _ in range(100):
        concept = Concept(
            "u:a", {"": texts()[0]}, {"en-gb": texts()}, {"x-toolonglanguage": texts()}, texts(),
            {"fi": texts()}, broader=("u:b",), replaced_by=("u:b",), is_deprecated=True,
            scheme=("u:s", "u:t"),
        )  # fmt: skip
        vocabulary = ConceptVocabulary((concept, Concept("u:b", narrower=("u:a",))))
        for name, lines in {"w.nt": ntriples_lines, "w.ttl": turtle_lines}.items():
            again = written(tmp_path, "\n".join(lines(vocabulary)), name)
            assert read_vocabulary(again).concepts == vocabulary.concepts


def test_contexts_from_elsewhere_are_refused_and_not_fetched(tmp_path, no_network):
    contexts = [
        "https://example.org/context.jsonld",
        [{"skos": SKOS}, "context.jsonld"],
        {"a": {"@id": "u:a", "@context": "http://example.org/inner"}},
        {"@import": "http://example.org/import"},
    ]
    for context in contexts:
        content = {"@graph": [{"@context": context, "@id": "u:a", "@type": f"{SKOS}Concept"}]}
        path = written(tmp_path, json.dumps(content), "v.jsonld")
        assert "must stand in the file itself" in refusal(path)


def test_what_is_no_concept_and_what_is_left_out_is_counted(tmp_path):
    text = """
    :a a skos:Concept ; skos:prefLabel "B"@en, "A"@EN, " "@en ; skos:altLabel <u:x>, "A"@en ;
       skos:broader :gone, "b" ; skos:narrower :b ; skos:related :gone ; xl:altLabel :label .
    :b skos:prefLabel "b" ; skos:related :a ; owl:deprecated "1" ; skos:definition <u:text> .
    :c a skos:Collection ; skos:prefLabel "c" .
    _:d a skos:Concept .
    :e skos:altLabel "e" .
    """
    vocabulary = read_vocabulary(written(tmp_path, TURTLE + text))
    a, b = "http://example.org/a", "http://example.org/b"
    assert vocabulary.concepts == (
        Concept(a, {"en": "A"}, {"en": ("A", "B")}, narrower=(b,), related=(b,)),
        Concept(b, {"": "b"}, broader=(a,), related=(a,), is_deprecated=True),
    )
    assert vocabulary.second_names == 1
    remarks = "\n".join(vocabulary.left_out.remarks())
    assert "1 concepts have no URI" in remarks and "1 broader or narrower concepts are" in remarks
    assert "1 related concepts" in remarks and "2 statements have a text where" in remarks
    assert "1 names are resources of SKOS-XL" in remarks


def test_annifs_tsv(tmp_path):
    text = "<u:b>\tnetwork\n<u:a>\t science\t42.42\r\n\n<u:c>\n"
    for name in ("v.tsv", "v.tsv.gz"):
        assert read_vocabulary(written(tmp_path, text, name)).concepts == (
            Concept("u:a", {"": "science"}, notations=("42.42",)),
            Concept("u:b", {"": "network"}),
            Concept("u:c", is_deprecated=True),
        )


def test_bad_lines_of_annifs_tsv_are_told(tmp_path):
    message = refusal(
        written(tmp_path, "u:a\tx\n<u:b>\tx\ty\tz\n<u:c>\tx\n<u:c>\ty\n<>\tx", "v.tsv")
    )
    assert "4 lines can't be read as subjects" in message
    assert "line 1: 'u:a' is no URI in angle brackets" in message
    assert "line 2: 4 cells; expected a URI, a label and a notation" in message
    assert "line 4: URI 'u:c' again, as on line 3" in message
    assert "line 5: no URI" in message


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_annifs_csv(tmp_path, delimiter):
    rows = ["uri,label_en,label_pt_BR,notation", "u:a,x,y z,1.2", 'u:b,,"q",', "u:c,,,"]
    path = written(tmp_path, "\n".join(rows).replace(",", delimiter), "v.csv")
    assert is_vocabulary_file(path)
    assert read_vocabulary(path).concepts == (
        Concept("u:a", {"en": "x", "pt-br": "y z"}, notations=("1.2",)),
        Concept("u:b", {"pt-br": "q"}),
        Concept("u:c", is_deprecated=True),
    )


def random_vocabulary(rng) -> ConceptVocabulary:
    facts: Facts = {str(i): [("type", CONCEPT, None)] for i in range(rng.randrange(1, 12))}
    for about in facts.values():
        for _ in range(rng.randrange(3)):
            name = rng.choice(["broader", "narrower"])
            about.append((name, rng.choice([*facts]), None))
    return assemble(facts)


def reachable(concepts: dict[str, Concept], start: str) -> set[str]:
    """Return what is broader than a concept, however far."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for each in set(concepts[waiting.pop()].broader) - found:
            found.add(each)
            waiting.append(each)
    return found


def test_circles_are_those_of_a_plain_search():
    seen = 0
    for seed in range(300):
        concepts = random_vocabulary(random.Random(seed)).concepts  # noqa: S311
        by_id = {concept.id: concept for concept in concepts}
        above = {id_: reachable(by_id, id_) for id_ in by_id}
        expected = {
            tuple(sorted(other for other in by_id if other in above[id_] and id_ in above[other]))
            for id_ in by_id
            if id_ in above[id_]
        }
        assert set(hierarchy_of(concepts).cycles) == expected
        seen += len(expected)
    assert seen > 50


def test_levels_are_those_of_a_plain_search():
    for seed in range(300):
        concepts = random_vocabulary(random.Random(seed)).concepts  # noqa: S311
        tops = [x for x in concepts if set(x.broader) <= {x.id}]
        depth = {concept.id: 1 for concept in tops}
        for _ in concepts:
            for concept in concepts:
                ways = [depth[each] + 1 for each in concept.broader if each in depth]
                if ways and concept.broader:
                    depth[concept.id] = min([*ways, depth.get(concept.id, 99)])
        found = hierarchy_of(concepts)
        assert found.num_levels == max(depth.values(), default=0)
        assert found.num_alone == sum(set(x.narrower) <= {x.id} for x in tops)
        assert found.num_top + found.num_alone == len(tops)


REPLACEMENTS = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
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
    (tmp_path / "v.ttl").write_text(REPLACEMENTS)
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
