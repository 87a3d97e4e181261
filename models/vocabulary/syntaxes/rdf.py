"""SKOS in four syntaxes of RDF, read by pyoxigraph (an extra): statements about concepts."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from xml.parsers import expat

from longtail.models.errors import DataError, count_of
from longtail.models.extras import require
from longtail.models.files.text_files import (
    AsUtf8,
    BadLine,
    ByteFile,
    ProblemList,
    lines,
    list_problems,
    reading,
)
from longtail.models.vocabulary.concept import PROPERTY_OF, Facts

FORMS: Final = {
    ".ttl": "TURTLE", ".nt": "N_TRIPLES", ".rdf": "RDF_XML", ".xml": "RDF_XML", ".jsonld": "JSON_LD"
}  # fmt: skip
"""Ends of the names of files, and pyoxigraph's names of their syntaxes."""
_ADVICE = {
    "RDF_XML": "correct it there",
    "TURTLE": "correct it there",
    "JSON_LD": "correct it; a context must stand in the file itself, none is fetched",
}
_PLACE = re.compile(r"Parser error (?:at|between) [^:]*: ")


def read_rdf(path: Path, form: str, facts: Facts, max_problems: int) -> None:
    """Add the statements of a file to the facts; nothing else is opened or fetched."""
    require("skos", f"{path}: a vocabulary in RDF", DataError)
    import pyoxigraph

    if form == "RDF_XML":
        with _opened(path, form) as file:
            check_xml(path, file)
    try:
        with _opened(path, form) as file:
            _add(pyoxigraph, _statements(pyoxigraph, file, form), facts)
    except SyntaxError as error:
        if form == "N_TRIPLES":
            _refuse_lines(pyoxigraph, path, max_problems)
        line = error.lineno or _line_of_error(pyoxigraph, path, form)
        raise DataError(
            f"{path}, line {line}: can't be read ({_reason(error)}); {_ADVICE[form]}"
        ) from error


class _LineByLine:
    """A file that gives no more than one line at a time, and knows how many were begun."""

    def __init__(self, file: ByteFile) -> None:
        self._file = file
        self._begins_line = True
        self.num_lines = 0

    def read(self, size: int) -> bytes:
        line = self._file.readline(size)
        self.num_lines += self._begins_line and bool(line)
        self._begins_line = line.endswith(b"\n")
        return line


@contextmanager
def _opened(path: Path, form: str) -> Iterator[ByteFile]:
    """Give the file for reading.

    Yields:
        Its bytes in UTF-8, without the declaration of XML.
    """
    with reading(path) as (file, _):
        yield xml_as_utf8(path, file) if form == "RDF_XML" else file


def _statements(library: ModuleType, source: Any, form: str) -> Iterable[Any]:
    """Return the statements of a file or of bytes; IRIs are not checked."""
    quads: Iterable[Any] = library.parse(source, getattr(library.RdfFormat, form), lenient=True)
    return quads


def _add(library: ModuleType, statements: Iterable[Any], facts: Facts) -> None:
    # Add statements to the facts.
    literal = library.Literal
    properties = {library.NamedNode(iri): name for iri, name in PROPERTY_OF.items()}
    last, about = None, []
    for statement in statements:
        name = properties.get(statement.predicate)
        if name is None:
            continue
        subject, value = statement.subject, statement.object
        if subject != last:  # most follow others about the same
            about = facts.setdefault(_node(library, subject), [])
            last = subject
        if isinstance(value, literal):
            about.append((name, value.value, (value.language or "").lower()))
        else:
            about.append((name, _node(library, value), None))


def _node(library: ModuleType, term: Any) -> str:
    # Return an IRI, or the name of a blank node, which begins with `BLANK`.
    if not isinstance(term, library.NamedNode):
        return str(term)
    iri: str = term.value
    if ":" not in iri:
        raise SyntaxError(f"the IRI {iri!r} is relative; write it in full, or give a base")
    return iri


def _refuse_lines(library: ModuleType, path: Path, max_problems: int) -> None:
    # Parse each line of N-Triples on its own, and list the bad ones.
    problems = ProblemList(path, max_problems)
    for number, line in lines(path):
        try:
            _add(library, _statements(library, line, "N_TRIPLES"), {})
        except SyntaxError as error:
            problems.add(BadLine(number, _reason(error)))
    listed = list_problems(problems.kept, problems.num_problems)
    bad = f"{count_of(problems.num_problems, 'line')} can't be read as N-Triples"
    raise DataError(f"{path}: {bad}; correct them\n{listed}")


def _line_of_error(library: ModuleType, path: Path, form: str) -> int:
    """Return how many lines are read before the error of a file comes up."""
    with _opened(path, form) as file:
        source = _LineByLine(file)
        with suppress(SyntaxError):
            _add(library, _statements(library, source, form), {})
    return source.num_lines


def _reason(error: SyntaxError) -> str:
    return _PLACE.sub("", error.msg, count=1)


_DECLARATION = re.compile(rb"\s*<\?xml\b[^>]*\?>")
_ENCODING = re.compile(rb"encoding\s*=\s*[\"']([\w.\-]+)[\"']")
_IS_UTF_8 = re.compile(r"utf-?(8|16|16le|16be)", re.IGNORECASE)  # UTF-16 has been decoded
_LONGEST_ENTITY = 256
_MAX_DEPTH = 100
_BLOCK_BYTES = 2**16


def xml_as_utf8(path: Path, file: ByteFile) -> ByteFile:
    """Return a file from behind its XML declaration, in UTF-8 whatever encoding that names."""
    declaration = _DECLARATION.match(file.peek(1))
    if declaration is None:
        return file
    file.read(declaration.end())
    encoding = _ENCODING.search(declaration.group())
    name = encoding.group(1).decode() if encoding else "utf-8"
    if _IS_UTF_8.fullmatch(name):
        return file
    try:
        return io.BufferedReader(AsUtf8(file, name))
    except LookupError as error:
        raise DataError(f"{path}: unknown encoding {name!r}; save the file as UTF-8") from error


def check_xml(path: Path, file: ByteFile) -> None:
    """Refuse XML that is cut off, nested deeply, or grows by its entities.

    Args:
        path: For messages.
        file: What `xml_as_utf8` gives; read to its end.
    """
    parser = expat.ParserCreate("utf-8")
    opened: list[str] = []

    def refuse(problem: str) -> None:
        raise DataError(f"{path}, line {parser.CurrentLineNumber}: {problem}")

    def declare(name: str, is_parameter: int, value: str | None, *_: str | None) -> None:
        if is_parameter or value is None:
            refuse(
                f"the entity {name!r} lies elsewhere or is a parameter, and nothing is fetched; "
                "write its text in full"
            )
        elif "&" in value or len(value) > _LONGEST_ENTITY:
            refuse(
                f"the entity {name!r} holds another one or more than {_LONGEST_ENTITY} "
                "characters; write its text in full"
            )

    def begin(name: str, _: object) -> None:
        opened.append(name)
        if len(opened) > _MAX_DEPTH:
            refuse(f"more than {_MAX_DEPTH} elements within each other; write them one by one")

    parser.EntityDeclHandler, parser.StartElementHandler = declare, begin
    parser.EndElementHandler = lambda _: opened.pop()
    _parse(parser, path, file)


def _parse(parser: expat.XMLParserType, path: Path, file: ByteFile) -> None:
    try:
        while block := file.read(_BLOCK_BYTES):
            parser.Parse(block)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DataError(
            f"{path}, line {error.lineno}: not XML ({reason}); is it whole? Correct it there"
        ) from error
