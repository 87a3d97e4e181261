"""The reader of N-Triples: one statement a line."""

from __future__ import annotations

import re
import reprlib
from pathlib import Path

from longtail.models.errors import DataError
from longtail.models.files.bad_lines import BadLine, ProblemList, list_problems
from longtail.models.files.text_files import lines
from longtail.models.vocabulary.facts import PROPERTY_OF, Facts
from longtail.models.vocabulary.syntaxes.terms import BLANK_NODE, IRI, LANGUAGE, absolute, unescaped

_STATEMENT = re.compile(
    rf"[ \t]*+({IRI}|{BLANK_NODE})[ \t]*+({IRI})[ \t]*+"
    rf'(?:({IRI}|{BLANK_NODE})|"((?:[^"\\\r\n]++|\\.)*+)"(?:@({LANGUAGE})|\^\^{IRI})?+)'
    r"[ \t]*+\.[ \t]*+(?:#.*)?[\r\n]*"
)
_PROPERTY_OF = {f"<{iri}>": name for iri, name in PROPERTY_OF.items()}
_NOTHING = re.compile(r"\s*(#.*)?", re.DOTALL)


def read_ntriples(path: Path, facts: Facts, max_problems: int) -> None:
    """Add the statements of a file to the facts.

    Args:
        path: The file, plain or gzip-compressed.
        facts: What is known of each subject.
        max_problems: Lines that a message lists.

    Raises:
        DataError: The file can't be read to its end, or lines are no statements; the message lists
            them with their numbers.
    """
    problems = ProblemList(path, max_problems)
    for number, line in lines(path):
        try:
            _add(facts, line.decode())
        except DataError as error:
            problems.add(BadLine(number, str(error)))
        except UnicodeDecodeError as error:
            problems.add(BadLine(number, f"not UTF-8 (byte 0x{line[error.start]:02x})"))
    if problems.num_problems:
        listed = list_problems(problems.kept, problems.num_problems)
        raise DataError(
            f"{path}: {problems.num_problems} lines are no N-Triples; correct them\n{listed}"
        )


def _add(facts: Facts, line: str) -> None:
    """Add what a line says.

    Raises:
        DataError: It is no statement; the message is the bare reason.
    """
    found = _STATEMENT.fullmatch(line)
    if found is None:
        _check_holds_nothing(line)
        return
    subject, predicate, node, text, language = found.groups()
    name = _PROPERTY_OF.get(predicate)
    if name is None and "\\" in predicate:
        name = PROPERTY_OF.get(_node(predicate))
    if name is None:
        return
    about = facts.setdefault(_node(subject), [])
    if text is None:
        about.append((name, _node(node), None))
    else:
        about.append((name, unescaped(text), language.lower() if language else ""))


def _node(term: str) -> str:
    """Return the IRI between angle brackets, or the name of a blank node as it is.

    Raises:
        DataError: It has an unknown escape, or is relative.
    """
    return absolute(unescaped(term[1:-1]), "") if term[0] == "<" else term


def _check_holds_nothing(line: str) -> None:
    """Refuse a line that is neither blank nor a comment.

    Raises:
        DataError: It is neither.
    """
    if _NOTHING.fullmatch(line):
        return
    cut = "" if line.rstrip().endswith(".") else ", and it doesn't end with '.': is it cut off?"
    raise DataError(
        f"{reprlib.repr(line.strip())} is no statement; expected '<subject> <predicate> <object> "
        f".' or '<subject> <predicate> \"text\"@en .'{cut}"
    )
