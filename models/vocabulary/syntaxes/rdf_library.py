"""Reading with rdflib, an extra: what the fast readers leave to it, and JSON-LD."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from longtail.models.errors import DataError
from longtail.models.files.text_files import lines, raw_blocks
from longtail.models.vocabulary.facts import BLANK, PROPERTY_OF, Facts

_NO_BASE = "http://no-base.invalid/"
"""Is put before relative IRIs, which are then refused."""


def read_with_rdflib(path: Path, form: str, facts: Facts) -> None:
    """Add the statements of a file to the facts; nothing else is opened or fetched.

    Args:
        path: The file, plain or gzip-compressed; JSON-LD without contexts from elsewhere.
        form: rdflib's name of the syntax.
        facts: What is known of each subject.

    Raises:
        DataError: rdflib is not installed, or can't read the file, or an IRI is relative.
    """
    try:
        import rdflib
    except ImportError as error:
        raise DataError(
            f"{path}: only rdflib reads this ({form}), and it is not installed; "
            "pip install 'longtail[skos]'"
        ) from error
    dataset = rdflib.Dataset(default_union=True)
    with _lexical_forms_kept(rdflib):
        try:
            dataset.parse(data=_content(path, form), format=form, publicID=_NO_BASE)
        except DataError:
            raise
        except Exception as error:  # its parsers raise errors of many kinds
            raise DataError(f"{path}: can't be read as {form} ({_said(error)})") from error
        for iri, name in PROPERTY_OF.items():
            for subject, _, value, _ in dataset.quads((None, rdflib.URIRef(iri), None, None)):
                about = facts.setdefault(_node(rdflib, path, subject), [])
                if isinstance(value, rdflib.Literal):
                    about.append((name, str(value), (value.language or "").lower()))
                else:
                    about.append((name, _node(rdflib, path, value), None))


def _content(path: Path, form: str) -> bytes:
    """Return the bytes of a file: of XML as they are, else in UTF-8."""
    return b"".join(raw_blocks(path) if form == "xml" else (line for _, line in lines(path)))


def _node(rdflib: Any, path: Path, term: Any) -> str:
    """Return an IRI, or the name of a blank node.

    Raises:
        DataError: The IRI was relative.
    """
    if isinstance(term, rdflib.BNode):
        return f"{BLANK}{term}"
    if term.startswith(_NO_BASE):
        raise DataError(
            f"{path}: the IRI {term.removeprefix(_NO_BASE)!r} is relative; write it in full, or "
            "give a base"
        )
    return str(term)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__


@contextmanager
def _lexical_forms_kept(rdflib: Any) -> Iterator[None]:
    """Keep rdflib from rewriting typed texts ("007"), and from warnings about them and itself.

    Yields:
        Nothing.
    """
    normalizes = rdflib.NORMALIZE_LITERALS
    log = logging.getLogger("rdflib.term")
    level = log.level
    rdflib.NORMALIZE_LITERALS = False
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        rdflib.NORMALIZE_LITERALS = normalizes
        log.setLevel(level)
