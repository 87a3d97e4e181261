"""RDF: what each syntax may look like, what is refused, and where the message says it is."""

from __future__ import annotations

import sys

import pytest

from tests.models.vocabulary.conftest import refusal, written

SKOS = "http://www.w3.org/2004/02/skos/core#"
NAME = f"<{SKOS}prefLabel>"
TURTLE = f"@prefix skos: <{SKOS}> .\n@prefix ex: <http://example.org/> .\n"
RDF = (
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    f'xmlns:skos="{SKOS}" xmlns:ex="http://example.org/"'
)
XML = f"""<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [ <!ENTITY ex "http://example.org/"> ]>
{RDF} xml:base="http://example.org/v" xml:lang="de">
  <!-- comment -->
  <skos:Concept rdf:about="&ex;a" skos:notation="4.2">
    <skos:prefLabel xml:lang="en-GB">River &amp; lake</skos:prefLabel>
    <skos:prefLabel><![CDATA[Fluß & See]]></skos:prefLabel>
    <skos:altLabel xml:lang="">plain</skos:altLabel>
    <skos:broader><skos:Concept rdf:about="#b" xml:lang="fi" skos:prefLabel="vesi"/></skos:broader>
    <skos:related><skos:Concept rdf:ID="c"/></skos:related>
    <ex:p rdf:parseType="Resource"><ex:q>1</ex:q></ex:p>
    <ex:p rdf:parseType="Literal"><b>1</b></ex:p>
  </skos:Concept>
  <skos:Concept rdf:nodeID="n"/>
</rdf:RDF>
"""


BAD = {
    ".ttl": [
        'ex:a skos:prefLabel "x" ex:b .',
        "ex:a a ex:b ; no:b 'x' .",
        "ex:a skos:prefLabel 'a\\q' .",
        "<a> skos:prefLabel 'relative' .",
        b"ex:a skos:prefLabel '\xe9' .",
    ],
    ".rdf": [
        "<skos:Concept rdf:about='u:a'></no>",
        "<skos:Concept rdf:about='relative'/>",
        "<ex:A><ex:p><ex:B/><ex:C/></ex:p></ex:A>",
        "<no:A/>",
    ],
    ".jsonld": ["{'", '{"@id": "relative", "@type": "' + SKOS + 'Concept"}]'],
}  # fmt: skip


@pytest.mark.parametrize(("form", "bad"), [(form, bad) for form in BAD for bad in BAD[form]])
def test_what_is_wrong_is_told_with_its_line(tmp_path, form, bad) -> None:
    head = {".ttl": TURTLE, ".rdf": f"\n{RDF}>\n", ".jsonld": "[\n\n"}[form].encode()
    content = head + (bad if isinstance(bad, bytes) else bad.encode()) + b"\n" * 4000
    assert f"v{form}, line 3: " in refusal(written(tmp_path, content, f"v{form}"))


@pytest.mark.parametrize(
    "line",
    [
        '<u:a> <u:b> "cut',
        '<u:a> <u:b> "a" . <u:c> <u:d> "e" .',
        f'<u:a> {NAME} "\\uD800" .',
        b'<u:a> <u:b> "\xff" .',
    ],
)
def test_a_bad_line_of_ntriples_is_told_alone(tmp_path, line) -> None:
    good = f'<u:a> {NAME} "good"@en .'.encode()
    lines = [good, line if isinstance(line, bytes) else line.encode(), good]
    message = refusal(written(tmp_path, b"\n".join(lines), "v.nt"))
    assert "1 lines are no N-Triples" in message and "v.nt, line 2: " in message


def test_a_file_that_is_cut_in_compression_is_refused(tmp_path) -> None:
    for name, content in {"v.rdf.gz": XML, "v.ttl.gz": TURTLE}.items():
        path = written(tmp_path, content, name)
        path.write_bytes(path.read_bytes()[:-12])
        assert "is it whole?" in refusal(path)


def test_without_pyoxigraph_the_message_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    assert 'pip install "longtail[skos]"' in refusal(written(tmp_path, TURTLE, "v.ttl"))
