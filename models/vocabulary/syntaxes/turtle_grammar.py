"""The parts of Turtle that vocabularies use, as patterns (RDF 1.1 Turtle, section 6.5)."""

from __future__ import annotations

import re

from longtail.models.vocabulary.syntaxes.terms import BLANK_NODE, IRI, LANGUAGE

SPACE = r"(?:[ \t\r\n]++|#[^\r\n]*+)*+"
_PREFIX = r"(?:[^\W\d_](?:[\w.\-\u00b7]*[\w\-\u00b7])?)?:"
_LOCAL = r"(?:[\w\-:%\u00b7]++|\\[_~.\-!$&'()*+,;=/?#@%]|\.++(?=[\w\-:%\\\u00b7]))*+"
_NAME = rf"{_PREFIX}{_LOCAL}"
_NODE = rf"{IRI}|{BLANK_NODE}|\[{SPACE}\]|{_NAME}"
_VERB = rf"a(?![\w:.\-])|{IRI}|{_NAME}"
_TEXT = (
    r'"""((?:[^"\\]++|\\[\s\S]|"(?!""))*+)"""'
    r"|'''((?:[^'\\]++|\\[\s\S]|'(?!''))*+)'''"
    r'|"((?:[^"\\\r\n]++|\\.)*+)"'
    r"|'((?:[^'\\\r\n]++|\\.)*+)'"
)
_VALUE = r"[+-]?(?:\d+\.?\d*[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?|\d+\.\d+|\d+)|true\b|false\b"
_OBJECT = rf"(?:({IRI})|(?:{_TEXT})(?:@({LANGUAGE})|\^\^(?:{IRI}|{_NAME}))?+|({_VALUE})|({_NODE}))"

SUBJECT = re.compile(rf"{SPACE}({_NODE})")
DIRECTIVE = re.compile(
    rf"{SPACE}(?:@prefix\s+({_PREFIX}){SPACE}({IRI}){SPACE}\.|@base\s+({IRI}){SPACE}\.|"
    rf"(?i:PREFIX)\s+({_PREFIX}){SPACE}({IRI})|(?i:BASE)\s+({IRI}))"
)
"""Groups: prefix and IRI, or base; the same in the style of SPARQL."""
PAIR = re.compile(
    rf"{SPACE}(?:;{SPACE})*+(?:(\.)|({_VERB}){SPACE}{_OBJECT}{SPACE}([;,.]))",
)
"""Of a subject. Groups: the end of a statement; or the verb, then those of `NEXT_OBJECT`."""
NEXT_OBJECT = re.compile(rf"{SPACE}{_OBJECT}{SPACE}([;,.])")
"""Groups: an IRI, four kinds of texts, a language, a number or truth value, a node; what follows"""
ONLY_SPACE = re.compile(SPACE)
ONLY_VERB = re.compile(rf"{SPACE}(?:;{SPACE})*+(?:{_VERB})")
ONLY_OBJECT = re.compile(rf"{SPACE}{_OBJECT}")
LONG_TEXT = re.compile(r"\"\"\"|'''")
BEYOND = re.compile(r"\[|\(|<<|\{")
"""Begins what only a full parser reads: property lists of blank nodes, collections, quotations."""
