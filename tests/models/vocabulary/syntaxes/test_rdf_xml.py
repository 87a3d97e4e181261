"""The reader of RDF/XML: what rdflib reads, and what is refused for safety."""

from __future__ import annotations

from pathlib import Path

import pytest
from rdflib import Graph

from longtail.models.errors import DataError
from longtail.models.vocabulary.reading import read_vocabulary

XML_CHARACTERS = "aZ09 ._-:;,#@<>[]{}\\\"'\n\té日本😀&"
RDF = (
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    'xmlns:skos="http://www.w3.org/2004/02/skos/core#" xmlns:ex="http://example.org/"'
)


def written(folder: Path, content: str | bytes, name: str = "v.rdf") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("form", ["xml", "pretty-xml"])
def test_random_graphs_read_as_they_were(tmp_path, made_up, without_rdflib, form) -> None:
    for seed in range(100):
        graph = made_up.random_graph(made_up.seeded(seed), XML_CHARACTERS)
        made_up.check_same(read_vocabulary(written(tmp_path, graph.serialize(format=form))), graph)


STRIPED = f"""<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [ <!ENTITY ex "http://example.org/"> ]>
{RDF} xml:base="http://example.org/v" xml:lang="de">
  <!-- comment -->
  <skos:Concept rdf:about="&ex;a" skos:notation="4.2">
    <skos:prefLabel xml:lang="en">River &amp; lake</skos:prefLabel>
    <skos:prefLabel>Flu<![CDATA[ß & ]]>See</skos:prefLabel>
    <skos:altLabel xml:lang="">plain</skos:altLabel>
    <skos:broader>
      <rdf:Description rdf:about="#b" xml:lang="fi">
        <rdf:type rdf:resource="http://www.w3.org/2004/02/skos/core#Concept"/>
        <skos:prefLabel>vesi</skos:prefLabel>
        <skos:narrower rdf:resource="other"/>
      </rdf:Description>
    </skos:broader>
    <skos:related>
      <ex:Thing rdf:ID="c"><skos:prefLabel rdf:datatype="u:t">C</skos:prefLabel></ex:Thing>
    </skos:related>
    <skos:related rdf:nodeID="n"/>
  </skos:Concept>
  <skos:Concept rdf:nodeID="n"><skos:prefLabel>leer</skos:prefLabel></skos:Concept>
  <skos:Concept rdf:about="other"><skos:definition><ex:Note/></skos:definition></skos:Concept>
</rdf:RDF>
"""


def test_nodes_within_properties_bases_languages_and_entities(tmp_path, made_up) -> None:
    path = written(tmp_path, STRIPED)
    graph = Graph().parse(path, format="xml")
    vocabulary = read_vocabulary(path)
    made_up.check_same(vocabulary, graph)
    ids = [concept.id.removeprefix("http://example.org/") for concept in vocabulary.concepts]
    assert ids == ["a", "other", "v#b", "v#c"]
    first = vocabulary.concepts[0]
    assert first.names == {"en": "River & lake", "de": "Fluß & See"}
    assert first.other_names == {"": ("plain",)} and first.notations == ("4.2",)
    assert vocabulary.left_out.concepts_without_uri == 1


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-16", "utf-8-sig"])
def test_the_first_line_names_the_encoding(tmp_path, encoding) -> None:
    name = encoding.removesuffix("-sig")
    text = f"<?xml version='1.0' encoding='{name}'?>{RDF}><skos:Concept rdf:about='u:a'>"
    text += "<skos:prefLabel>é</skos:prefLabel></skos:Concept></rdf:RDF>"
    path = written(tmp_path, text.encode(encoding))
    assert read_vocabulary(path).concepts[0].names == {"": "é"}


def test_what_the_fast_reader_does_not_read_is_read_all_the_same(tmp_path, made_up) -> None:
    odd = '<ex:p rdf:parseType="Resource"><ex:q>1</ex:q></ex:p></skos:Concept>'
    path = written(tmp_path, STRIPED.replace("</skos:Concept>", odd, 1))
    made_up.check_same(read_vocabulary(path), Graph().parse(path, format="xml"))
    alone = f"{RDF.replace('rdf:RDF', 'skos:Concept')} rdf:about='u:a'/>"
    assert read_vocabulary(written(tmp_path, alone)).concepts[0].id == "u:a"


BOMB = "".join(f'<!ENTITY x{i} "&x{i - 1};&x{i - 1};">' for i in range(1, 30))
DECLARED = {
    f'<!ENTITY x0 "ha">{BOMB}': "line 1: the entity 'x1' holds another one",
    f'<!ENTITY x "{"ha" * 1000}">': "the entity 'x' holds another one or more than 256",
    '<!ENTITY x SYSTEM "file:///etc/passwd">': "the entity 'x' lies elsewhere",
    '<!ENTITY % x SYSTEM "http://example.org/x.dtd"> %x;': "the entity 'x' lies elsewhere",
}


@pytest.mark.parametrize("declared", DECLARED)
def test_entities_that_grow_or_lie_elsewhere_are_refused(tmp_path, declared) -> None:
    text = f"<!DOCTYPE rdf:RDF [ {declared} ]>{RDF}><skos:Concept rdf:about='u:a'/></rdf:RDF>"
    with pytest.raises(DataError) as caught:
        read_vocabulary(written(tmp_path, text))
    assert DECLARED[declared] in str(caught.value)


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("<skos:Concept rdf:about='u:a'>", "line 2: not XML (mismatched tag)"),
        ("<skos:Concept rdf:about='a'/>", "line 2: the IRI 'a' is relative"),
        ("<ex:A><ex:p><ex:B/><ex:C/></ex:p></ex:A>", "line 2: two nodes in one property"),
        ("&nope;", "line 2: not XML (undefined entity)"),
        ("<no:A/>", "line 2: not XML (unbound prefix)"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, inside, words) -> None:
    with pytest.raises(DataError) as caught:
        read_vocabulary(written(tmp_path, f"{RDF}>\n{inside}</rdf:RDF>"))
    assert words in str(caught.value)
