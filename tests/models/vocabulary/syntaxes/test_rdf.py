"""RDF: what each syntax may look like, what is refused, and where the message says it is."""

import pytest

from tests.models.vocabulary.conftest import refusal, written

SKOS = "http://www.w3.org/2004/02/skos/core#"
NAME = f"<{SKOS}prefLabel>"
TURTLE = f"@prefix skos: <{SKOS}> .\n@prefix ex: <http://example.org/> .\n"
RDF = (
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    f'xmlns:skos="{SKOS}" xmlns:ex="http://example.org/"'
)


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
def test_what_is_wrong_is_told_with_its_line(tmp_path, form, bad):
    head = {".ttl": TURTLE, ".rdf": f"\n{RDF}>\n", ".jsonld": "[\n\n"}[form].encode()
    content = head + (bad if isinstance(bad, bytes) else bad.encode()) + b"\n" * 4000
    content += b"</rdf:RDF>" if form == ".rdf" else b""
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
def test_a_bad_line_of_ntriples_is_told_alone(tmp_path, line):
    good = f'<u:a> {NAME} "good"@en .'.encode()
    lines = [good, line if isinstance(line, bytes) else line.encode(), good]
    message = refusal(written(tmp_path, b"\n".join(lines), "v.nt"))
    assert "1 line can't be read as N-Triples" in message and "v.nt, line 2: " in message


@pytest.mark.parametrize("depth", [100, 101])
def test_xml_of_more_than_100_levels_is_refused(tmp_path, depth):
    inner = depth - 1  # the root is one
    content = f"{RDF}>{'<ex:A><ex:p>' * (inner // 2)}{'<ex:A>' * (inner % 2)}"
    content += f"{'</ex:A>' * (inner % 2)}{'</ex:p></ex:A>' * (inner // 2)}</rdf:RDF>"
    message = refusal(written(tmp_path, content, "v.rdf"))
    assert ("more than 100 elements" in message) == (depth > 100)
