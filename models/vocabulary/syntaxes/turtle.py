"""The fast reader of Turtle: the part of it that vocabularies use, in blocks of a few megabytes.

Statements are matched by one pattern for each pair of predicate and object. Property lists of blank
nodes, collections and quoted triples are not read; `BeyondTurtleError` tells where one begins.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from longtail.models.errors import DataError
from longtail.models.files.text_files import lines
from longtail.models.vocabulary.facts import PROPERTY_OF, TYPE, Fact, Facts, Property
from longtail.models.vocabulary.syntaxes.terms import TermError, absolute, unescaped
from longtail.models.vocabulary.syntaxes.turtle_grammar import (
    BEYOND,
    DIRECTIVE,
    LONG_TEXT,
    NEXT_OBJECT,
    ONLY_OBJECT,
    ONLY_SPACE,
    ONLY_VERB,
    PAIR,
    SUBJECT,
)

_BLOCK_BYTES = 2**20
_LOOK_AHEAD = 2**20
"""Characters beyond a place that can't be read, after which it is taken for wrong, not for cut."""
_LONGEST_TEXT = 64 * 2**20
"""The same where a long text may begin."""
_LOCAL_ESCAPE = re.compile(r"\\(.)")


class BeyondTurtleError(DataError):
    """The file has what only a full parser of Turtle reads."""


def read_turtle(path: Path, facts: Facts) -> None:
    """Add the statements of a file to the facts.

    Args:
        path: The file, plain or gzip-compressed.
        facts: What is known of each subject.

    Raises:
        BeyondTurtleError: Only a full parser reads it; facts may have been added.
        DataError: The file can't be read to its end, or isn't Turtle; the message has the line.
    """
    _TurtleReader(path, facts).read()


class _TurtleReader:
    def __init__(self, path: Path, facts: Facts) -> None:
        self._path = path
        self._facts = facts
        self._blocks = _blocks(path)
        self._text = ""
        self._at = 0
        self._first_line = 1
        """Number of the line in which the text begins."""
        self._namespaces: dict[str, str] = {}
        self._base = ""
        self._properties: dict[str, Property | None] = {"a": PROPERTY_OF[TYPE]}
        """What verbs mean, as they are written with the prefixes of now."""
        self._num_anonymous = 0

    def read(self) -> None:
        """Read all statements.

        Raises:
            DataError: As `read_turtle`.
        """
        while True:
            try:
                if found := SUBJECT.match(self._text, self._at):
                    subject = self._node(found.group(1))
                    self._at = found.end()
                    self._read_pairs(subject)
                elif found := DIRECTIVE.match(self._text, self._at):
                    self._direct(found)
                    self._at = found.end()
                elif not self._extend():
                    break
            except TermError as error:
                raise DataError(f"{self._path}, line {self._line()}: {error}") from error
        if self._after_space() < len(self._text):
            self._refuse("a statement or @prefix")

    def _read_pairs(self, subject: str) -> None:
        """Read predicates and objects up to the end of the statement."""
        about: list[Fact] | None = None
        while True:
            found = self._matched(PAIR, self._refuse_pair)
            end, verb, *terms, after = found.groups()
            if end:
                self._at = found.end()
                return
            known = self._properties
            name = known[verb] if verb in known else self._property(verb)
            if name is not None:
                if about is None:
                    about = self._facts.setdefault(subject, [])
                about.append(self._fact(name, terms))
            self._at = found.end()
            if after == ",":
                after = self._read_objects(name, about)
            if after == ".":
                return

    def _read_objects(self, name: Property | None, about: list[Fact] | None) -> str:
        """Read further objects of a predicate and return what stands behind the last one."""
        while True:
            found = self._matched(NEXT_OBJECT, self._refuse_object)
            *terms, after = found.groups()
            if name is not None and about is not None:
                about.append(self._fact(name, terms))
            self._at = found.end()
            if after != ",":
                return str(after)

    def _matched(self, pattern: re.Pattern[str], refuse: Callable[[], None]) -> re.Match[str]:
        """Return what a pattern matches here, reading on where it is cut.

        Args:
            pattern: What must stand here.
            refuse: Raises the error where it doesn't.
        """
        while (found := pattern.match(self._text, self._at)) is None:
            if not self._extend():
                refuse()
        return found

    def _fact(self, name: Property, terms: Sequence[Any]) -> Fact:
        iri, long_double, long_single, double, single, language, value, node = terms
        if iri or node:
            return name, self._node(iri or node), None
        for text in (double, long_double, single, long_single):
            if text is not None:
                return name, unescaped(text), language.lower() if language else ""
        return name, value, ""

    def _property(self, verb: str) -> Property | None:
        name = PROPERTY_OF.get(self._node(verb))
        self._properties[verb] = name
        return name

    def _node(self, term: str) -> str:
        """Return the IRI that a term stands for, or the name of a blank node.

        Raises:
            TermError: Its prefix is not declared, or it has an unknown escape or no base.
        """
        if term[0] == "<":
            return absolute(unescaped(term[1:-1]), self._base)
        if term[0] == "[":
            self._num_anonymous += 1
            return f"_:[]{self._num_anonymous}"
        prefix, _, local = term.partition(":")
        if prefix == "_":
            return term
        namespace = self._namespaces.get(prefix)
        if namespace is None:
            raise TermError(f"the prefix '{prefix}:' is not declared; declare it with @prefix")
        return namespace + (_LOCAL_ESCAPE.sub(r"\1", local) if "\\" in local else local)

    def _direct(self, found: re.Match[str]) -> None:
        """Take a prefix or a base."""
        prefix, namespace, base, prefix_2, namespace_2, base_2 = found.groups()
        iri = self._node(namespace or base or namespace_2 or base_2)
        if base or base_2:
            self._base = iri
        else:
            self._namespaces[(prefix or prefix_2)[:-1]] = iri
        self._properties = {"a": PROPERTY_OF[TYPE]}

    def _extend(self) -> bool:
        """Read on if the text ends before what is to be matched; False: it is not cut but wrong."""
        ahead = len(self._text) - self._at
        if ahead > _LONGEST_TEXT or (
            ahead > _LOOK_AHEAD and not LONG_TEXT.search(self._text, self._at, self._at + 10_000)
        ):
            return False
        block = next(self._blocks, None)
        if block is None:
            return False
        self._first_line += self._text.count("\n", 0, self._at)
        self._text = self._text[self._at :] + block
        self._at = 0
        return True

    def _after_space(self) -> int:
        found = ONLY_SPACE.match(self._text, self._at)
        assert found is not None
        return found.end()

    def _line(self) -> int:
        return self._first_line + self._text.count("\n", 0, self._after_space())

    def _refuse_pair(self) -> None:
        """Tell what is wrong with a predicate and its object."""
        verb = ONLY_VERB.match(self._text, self._at)
        if verb is None:
            self._refuse("a predicate and an object, or '.'")
        else:
            self._at = verb.end()
            self._refuse_object()

    def _refuse_object(self) -> None:
        """Tell what is wrong with an object, or behind it."""
        found = ONLY_OBJECT.match(self._text, self._at)
        if found is None:
            self._refuse("an IRI, a prefixed name or a text")
        else:
            self._at = found.end()
            self._refuse("';', ',' or '.'")

    def _refuse(self, expected: str) -> None:
        """Say where the file can't be read, what stands there and what was expected.

        Raises:
            BeyondTurtleError: A full parser may read it.
            DataError: None would.
        """
        start = self._after_space()
        rest = self._text[start:].split("\n", 1)[0].rstrip()
        got = reprlib.repr(rest) if rest else "the end of the file: is it cut off?"
        where = f"{self._path}, line {self._line()}"
        if BEYOND.match(self._text, start):
            raise BeyondTurtleError(f"{where}: {got}")
        raise DataError(f"{where}: expected {expected}; got {got}")


def _blocks(path: Path) -> Iterator[str]:
    """Yield the text in blocks of whole lines.

    Raises:
        DataError: The file can't be read to its end, or is not UTF-8.
    """
    block: list[str] = []
    size = 0
    for number, line in lines(path):
        try:
            block.append(line.decode())
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, line {number}: not UTF-8 (byte 0x{line[error.start]:02x}); "
                "save the file as UTF-8"
            ) from error
        size += len(line)
        if size > _BLOCK_BYTES:
            yield "".join(block)
            block, size = [], 0
    yield "".join(block)
