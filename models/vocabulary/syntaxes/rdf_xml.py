"""The fast reader of RDF/XML: nodes and properties in turn, as vocabularies are written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

from longtail.models.errors import DataError
from longtail.models.files.text_files import raw_blocks
from longtail.models.vocabulary.facts import BLANK, PROPERTY_OF, RDF, TYPE, Facts
from longtail.models.vocabulary.syntaxes.terms import TermError, absolute

_XML = "http://www.w3.org/XML/1998/namespace"
_LANGUAGE, _BASE = f"{_XML}lang", f"{_XML}base"
_ROOT, _DESCRIPTION = f"{RDF}RDF", f"{RDF}Description"
_ABOUT, _ID, _NODE_ID, _RESOURCE = (
    f"{RDF}{name}" for name in ("about", "ID", "nodeID", "resource")
)
_PARSE_TYPE, _DATATYPE = f"{RDF}parseType", f"{RDF}datatype"
_LONGEST_ENTITY = 256


class BeyondXmlError(DataError):
    """The file has what only a full parser of RDF/XML reads."""


def read_rdf_xml(path: Path, facts: Facts) -> None:
    """Add the statements of a file to the facts.

    Args:
        path: The file, plain or gzip-compressed, of any encoding that its first line names.
        facts: What is known of each subject.

    Raises:
        BeyondXmlError: Only a full parser reads it; facts may have been added.
        DataError: The file can't be read to its end, isn't RDF/XML, or declares entities that may
            be an attack; the message has the line.
    """
    reader = _XmlReader(facts)
    parser = reader.parser
    try:
        for block in raw_blocks(path):
            parser.Parse(block, False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise DataError(
            f"{path}, line {error.lineno}: not XML ({expat.ErrorString(error.code)})"
        ) from error
    except BeyondXmlError as error:
        raise BeyondXmlError(f"{path}, line {parser.CurrentLineNumber}: {error}") from error
    except (TermError, _MisplacedError) as error:
        raise DataError(f"{path}, line {parser.CurrentLineNumber}: {error}") from error


class _MisplacedError(DataError):
    """What stands in the file is not RDF/XML; the message is the bare reason."""


@dataclass(slots=True)
class _Element:
    """An element that is open.

    Attributes:
        subject: Of a node, its IRI; of a property, that of the node around it.
        predicate: Of a property; empty for nodes and the root.
        language: That holds in it.
        base: That holds in it.
        has_node: Whether a property's object is known to be a node.
    """

    subject: str
    predicate: str
    language: str
    base: str
    has_node: bool = False


class _XmlReader:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._open: list[_Element] = []
        self._text: list[str] = []
        self._num_blank = 0
        self.parser = expat.ParserCreate(None, "")  # names are IRIs: namespace and name together
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text.append
        self.parser.EntityDeclHandler = self._check_entity
        self.parser.SkippedEntityHandler = self._refuse_entity

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open:
            if name != _ROOT:
                raise BeyondXmlError(f"the first element is {name!r}, not rdf:RDF")
            self._open.append(self._element("", "", None, attributes))
            return
        parent = self._open[-1]
        if parent.subject and not parent.predicate:
            self._start_property(parent, name, attributes)
        else:
            self._start_node(parent, name, attributes)
        self._text.clear()

    def _element(
        self, subject: str, predicate: str, parent: _Element | None, attributes: dict[str, str]
    ) -> _Element:
        language = attributes.get(_LANGUAGE, parent.language if parent else "")
        base = attributes.get(_BASE, parent.base if parent else "")
        return _Element(subject, predicate, language.lower(), base)

    def _start_node(self, parent: _Element, name: str, attributes: dict[str, str]) -> None:
        element = self._element("", "", parent, attributes)
        element.subject = self._subject(element.base, attributes)
        if parent.predicate:
            if parent.has_node:
                raise _MisplacedError("two nodes in one property; expected one")
            parent.has_node = True
            self._add(parent.subject, parent.predicate, element.subject, None)
        if name != _DESCRIPTION:
            self._add(element.subject, TYPE, name, None)
        for attribute, value in attributes.items():
            if attribute in PROPERTY_OF:
                is_type = attribute == TYPE
                self._add(
                    element.subject,
                    attribute,
                    absolute(value, element.base) if is_type else value,
                    None if is_type else element.language,
                )
        self._open.append(element)

    def _subject(self, base: str, attributes: dict[str, str]) -> str:
        if _ABOUT in attributes:
            return absolute(attributes[_ABOUT], base)
        if _ID in attributes:
            return absolute(f"#{attributes[_ID]}", base)
        if _NODE_ID in attributes:
            return f"{BLANK}{attributes[_NODE_ID]}"
        self._num_blank += 1
        return f"{BLANK}[]{self._num_blank}"

    def _start_property(self, node: _Element, name: str, attributes: dict[str, str]) -> None:
        element = self._element(node.subject, name, node, attributes)
        for attribute in attributes:
            if attribute == _RESOURCE:
                self._add_node(element, absolute(attributes[attribute], element.base))
            elif attribute == _NODE_ID:
                self._add_node(element, f"{BLANK}{attributes[attribute]}")
            elif attribute == _DATATYPE:
                element.language = ""
            elif attribute not in {_LANGUAGE, _BASE, _ID}:
                raise BeyondXmlError(f"the attribute {attribute!r} of a property")
        self._open.append(element)

    def _add_node(self, element: _Element, node: str) -> None:
        element.has_node = True
        self._add(element.subject, element.predicate, node, None)

    def _end(self, name: str) -> None:  # noqa: ARG002  # expat passes it
        element = self._open.pop()
        if element.predicate and not element.has_node:
            self._add(element.subject, element.predicate, "".join(self._text), element.language)
        self._text.clear()

    def _add(self, subject: str, predicate: str, value: str, language: str | None) -> None:
        name = PROPERTY_OF.get(predicate)
        if name is not None:
            self._facts.setdefault(subject, []).append((name, value, language))

    def _check_entity(
        self, name: str, is_parameter: int, value: str | None, *where: str | None
    ) -> None:
        """Refuse entities that lie elsewhere, hold others or are long: small files that grow.

        Raises:
            _MisplacedError: It is one.
        """
        if is_parameter or value is None or any(where[1:]):
            raise _MisplacedError(
                f"the entity {name!r} lies elsewhere or is a parameter, and nothing is fetched; "
                "write its text in full"
            )
        if "&" in value or len(value) > _LONGEST_ENTITY:
            raise _MisplacedError(
                f"the entity {name!r} holds another one or more than {_LONGEST_ENTITY} "
                "characters, which can fill the memory; write its text in full"
            )

    def _refuse_entity(self, name: str, is_parameter: int) -> None:  # noqa: ARG002  # likewise
        raise _MisplacedError(f"the entity {name!r} is not declared; write its text in full")
