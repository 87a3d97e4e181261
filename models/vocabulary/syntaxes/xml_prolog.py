"""The head of an XML file: its encoding, and entities that would fill the memory."""

from __future__ import annotations

import io
import re
from pathlib import Path
from xml.parsers import expat

from longtail.models.errors import DataError
from longtail.models.files.text_files import AsUtf8, ByteFile

_DECLARATION = re.compile(rb"\s*<\?xml\b[^>]*\?>")
_ENCODING = re.compile(rb"encoding\s*=\s*[\"']([\w.\-]+)[\"']")
_IS_UTF_8 = re.compile(r"utf-?(8|16|16le|16be)", re.IGNORECASE)  # UTF-16 has been decoded
_LONGEST_ENTITY = 256
_BLOCK_BYTES = 2**16


def xml_as_utf8(path: Path, file: ByteFile) -> ByteFile:
    """Return a file from behind its XML declaration, in UTF-8 whatever encoding that names.

    Raises:
        DataError: The encoding is unknown.
    """
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


def check_entities(path: Path, file: ByteFile) -> None:
    """Refuse entities that lie elsewhere, hold others or are long: small files that grow.

    Args:
        path: For messages.
        file: What `xml_as_utf8` gives; read up to the block in which the first element begins.

    Raises:
        DataError: One is declared, or what is read is not XML; the message has the line.
    """
    parser = expat.ParserCreate("utf-8")
    begun: list[str] = []

    def check(name: str, is_parameter: int, value: str | None, *_: str | None) -> None:
        problem = None
        if is_parameter or value is None:
            problem = "lies elsewhere or is a parameter, and nothing is fetched"
        elif "&" in value or len(value) > _LONGEST_ENTITY:
            problem = f"holds another one or more than {_LONGEST_ENTITY} characters"
        if problem:
            raise DataError(
                f"{path}, line {parser.CurrentLineNumber}: the entity {name!r} {problem}; "
                "write its text in full"
            )

    parser.EntityDeclHandler = check
    parser.StartElementHandler = lambda name, _: begun.append(name)
    try:
        while not begun and (block := file.read(_BLOCK_BYTES)):
            parser.Parse(block)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DataError(f"{path}, line {error.lineno}: not XML ({reason}); correct it") from error
