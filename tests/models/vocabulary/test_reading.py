"""Any form of a vocabulary gives equal concepts; what can't be read is refused."""

from __future__ import annotations

import gzip
import json
import socket
import sys
from pathlib import Path

import pytest

from longtail.models.errors import DataError
from longtail.models.vocabulary.concept import Concept
from longtail.models.vocabulary.reading import is_vocabulary_file, read_vocabulary
from longtail.models.vocabulary.writing import ntriples_lines, turtle_lines

SKOS = "http://www.w3.org/2004/02/skos/core#"
XML_CHARACTERS = "aZ09 ._-:;,#@<>[]{}\\\"'\n\té日本😀&"
TURTLE = f"""@prefix skos: <{SKOS}> . @prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix : <http://example.org/> .
"""


def written(folder: Path, content: str, name: str = "v.ttl") -> Path:
    path = folder / name
    data = content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_vocabulary(path)
    return str(caught.value)


@pytest.fixture
def no_network(monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


FORMS = {
    "v.nt": "nt",
    "v.ttl": "turtle",
    "v.rdf": "xml",
    "v.xml": "pretty-xml",
    "v.jsonld": "json-ld",
}


@pytest.mark.parametrize("pack", ["", ".gz"])
def test_all_syntaxes_give_equal_vocabularies(tmp_path, made_up, no_network, pack) -> None:
    for seed in range(10):
        graph = made_up.random_graph(made_up.seeded(seed), XML_CHARACTERS)
        texts = {
            name: graph.serialize(format=form, encoding="utf-8").decode()
            for name, form in FORMS.items()
        }
        found = [read_vocabulary(written(tmp_path, text, n + pack)) for n, text in texts.items()]
        made_up.check_same(found[-1], graph)
        assert found.count(found[0]) == len(FORMS)


def test_what_is_written_reads_as_it_was(tmp_path, made_up) -> None:
    for seed in range(50):
        text = made_up.random_graph(made_up.seeded(seed)).serialize(format="nt", encoding="utf-8")
        vocabulary = read_vocabulary(written(tmp_path, text.decode(), "v.nt"))
        for name, lines in {"w.nt": ntriples_lines, "w.ttl": turtle_lines}.items():
            again = written(tmp_path, "\n".join(lines(vocabulary)), name)
            assert read_vocabulary(again).concepts == vocabulary.concepts


def test_an_iri_with_characters_that_none_may_have_is_escaped(tmp_path) -> None:
    vocabulary = read_vocabulary(written(tmp_path, "uri,label_en\nu:a b>,x\n", "v.csv"))
    again = written(tmp_path, "\n".join(turtle_lines(vocabulary)))
    assert read_vocabulary(again) == vocabulary
    assert "u:a\\u0020b\\u003E" in again.read_text()


def test_a_language_tag_that_is_none_is_not_written(tmp_path) -> None:
    vocabulary = read_vocabulary(written(tmp_path, "uri,label_e n\nu:a,x\n", "v.csv"))
    with pytest.raises(DataError, match="the language tag 'e n' of 'x' can't be written"):
        list(ntriples_lines(vocabulary))


def test_contexts_from_elsewhere_are_refused_and_not_fetched(tmp_path, no_network) -> None:
    contexts = [
        "https://example.org/context.jsonld",
        [{"skos": SKOS}, "context.jsonld"],
        {"a": {"@id": "u:a", "@context": "http://example.org/inner"}},
        {"@import": "http://example.org/import"},
    ]
    for context in contexts:
        content = {"@graph": [{"@context": context, "@id": "u:a", "@type": f"{SKOS}Concept"}]}
        path = written(tmp_path, json.dumps(content), "v.jsonld")
        assert "lies elsewhere, and nothing is fetched; write the context" in refusal(path)
    assert "not JSON in UTF-8" in refusal(written(tmp_path, "{", "v.jsonld"))


def test_named_graphs_of_json_ld_are_read(tmp_path) -> None:
    concept = {"@id": "u:a", "@type": f"{SKOS}Concept"}
    path = written(tmp_path, json.dumps({"@id": "u:graph", "@graph": [concept]}), "v.jsonld")
    assert read_vocabulary(path).concepts == (Concept("u:a"),)


@pytest.mark.parametrize("name", ["v.ttl", "v.jsonld"])
def test_without_rdflib_the_rest_is_refused_with_what_to_install(
    tmp_path, monkeypatch, name
) -> None:
    monkeypatch.setitem(sys.modules, "rdflib", None)
    good = written(tmp_path, TURTLE + ":a a skos:Concept .", "good.ttl")
    assert len(read_vocabulary(good).concepts) == 1
    odd = written(tmp_path, "{}" if name == "v.jsonld" else TURTLE + ":a :b [ :c :d ] .", name)
    assert "only rdflib reads this" in refusal(odd)
    assert "pip install 'longtail[skos]'" in refusal(odd)


def test_what_rdflib_refuses_is_told_in_a_sentence(tmp_path) -> None:
    assert "can't be read as turtle" in refusal(written(tmp_path, TURTLE + ":a :b ( :c"))
    relative = '[{"@id": "a", "@type": "' + SKOS + 'Concept"}]'
    assert "the IRI 'a' is relative" in refusal(written(tmp_path, relative, "v.jsonld"))


def test_numbers_keep_their_zeros(tmp_path) -> None:
    typed = '"007"^^<http://www.w3.org/2001/XMLSchema#integer>'
    text = TURTLE + f":a a skos:Concept ; skos:notation {typed} ; :p [ ] ."
    assert read_vocabulary(written(tmp_path, text)).concepts[0].notations == ("007",)
    text += " :b :c ( ) ."
    assert read_vocabulary(written(tmp_path, text)).concepts[0].notations == ("007",)


def test_what_is_no_concept_and_what_is_left_out_is_counted(tmp_path) -> None:
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


def test_a_file_with_names_of_skos_xl_alone_is_refused(tmp_path) -> None:
    text = ':a a skos:Concept ; xl:prefLabel :l . :l xl:literalForm "A"@en .'
    message = refusal(written(tmp_path, TURTLE + text))
    assert "all 1 names are resources of SKOS-XL, which are not read" in message


def test_files_without_concepts_or_of_another_kind_are_refused(tmp_path) -> None:
    assert "no concepts; expected resources with a URI" in refusal(written(tmp_path, ""))
    blank = refusal(written(tmp_path, TURTLE + "[] a skos:Concept ."))
    assert "no concepts" in blank and "1 concepts have no URI" in blank
    assert "no vocabulary by its name" in refusal(written(tmp_path, "", "v.txt"))
    assert "can't be read: there is no such file" in refusal(tmp_path / "none.nt")


def test_annifs_tsv(tmp_path) -> None:
    text = "<u:b>\tnetwork\n<u:a>\t science\t42.42\r\n\n<u:c>\n"
    for name in ("v.tsv", "v.tsv.gz"):
        assert read_vocabulary(written(tmp_path, text, name)).concepts == (
            Concept("u:a", {"": "science"}, notations=("42.42",)),
            Concept("u:b", {"": "network"}),
            Concept("u:c", is_deprecated=True),
        )


def test_bad_lines_of_annifs_tsv_are_told(tmp_path) -> None:
    message = refusal(
        written(tmp_path, "u:a\tx\n<u:b>\tx\ty\tz\n<u:c>\tx\n<u:c>\ty\n<>\tx", "v.tsv")
    )
    assert "4 lines are no subjects" in message
    assert "line 1: 'u:a' is no URI in angle brackets" in message
    assert "line 2: 4 cells; expected a URI, a label and a notation" in message
    assert "line 4: URI 'u:c' again, as on line 3" in message
    assert "line 5: no URI" in message


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_annifs_csv(tmp_path, delimiter) -> None:
    rows = ["uri,label_en,label_pt_BR,notation", "u:a,x,y z,1.2", 'u:b,,"q",', "u:c,,,"]
    path = written(tmp_path, "\n".join(rows).replace(",", delimiter), "v.csv")
    assert is_vocabulary_file(path)
    assert read_vocabulary(path).concepts == (
        Concept("u:a", {"en": "x", "pt-br": "y z"}, notations=("1.2",)),
        Concept("u:b", {"pt-br": "q"}),
        Concept("u:c", is_deprecated=True),
    )


def test_bad_records_of_annifs_csv_are_told(tmp_path) -> None:
    message = refusal(written(tmp_path, "uri,label_en\nu:a,x,y\nu:b,x\nu:b,y\n,z\n", "v.csv"))
    assert "3 lines are no subjects" in message
    assert "line 2: 3 cells; expected 2" in message and "line 4: URI 'u:b' again" in message
    assert "no column of labels" in refusal(written(tmp_path, "uri,name\nu:a,x\n", "v.csv"))


def test_which_files_are_vocabularies(tmp_path) -> None:
    for name in ("a.ttl", "a.NT", "a.rdf.gz", "a.xml", "a.jsonld", "a.tsv"):
        assert is_vocabulary_file(tmp_path / name)
    for name in ("labels.jsonl", "lbl.json.gz", "labels.txt", "ttl"):
        assert not is_vocabulary_file(tmp_path / name)
    assert not is_vocabulary_file(written(tmp_path, "id,name\n1,x\n", "labels.csv"))
