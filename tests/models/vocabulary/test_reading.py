"""Any form of a vocabulary gives equal concepts; what can't be read is refused."""

import json
import random
import socket

import pyoxigraph
import pytest

from longtail.models.vocabulary.concept import (
    Concept,
    ConceptVocabulary,
    ntriples_lines,
    turtle_lines,
)
from longtail.models.vocabulary.reading import is_vocabulary_file, read_vocabulary
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
        "u:a",
        {"fi-fi": 'Tulva "ä"'},
        {"": ("flood😀",)},
        {"en": ("a b",)},
        ("007",),
        broader=("u:b c",),
        scheme=("u:scheme",),
    ),
    Concept("u:b c", {"en": "B"}, narrower=("u:a",), is_deprecated=True),
)
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
    assert "4 lines are no subjects" in message
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
