"""Vocabularies for tests: random graphs, their Turtle in random styles, and what rdflib sees."""

from __future__ import annotations

import random

import rdflib
from rdflib import OWL, RDF, SKOS, XSD, BNode, Graph, Literal, URIRef

CHARACTERS = "aZ09 ._-~:;,#@<>[](){}\\\"'\n\t\réß日本\u200f😀&"
BASE = "http://example.org/a/"
IDS = [f"{BASE}{local}" for local in ("x", "x.y", "7", "é", "a%20b", "a,b", "a#b/c", "-q", "_")]
PREFIXES = {"": BASE, "skos": str(SKOS), "ex.a": f"{BASE}x", "owl": str(OWL), "xsd": str(XSD)}
TEXTS = {
    "names": SKOS.prefLabel,
    "other_names": SKOS.altLabel,
    "hidden_names": SKOS.hiddenLabel,
    "definitions": SKOS.definition,
}
RELATIONS = ("broader", "narrower", "related")


def seeded(seed: int) -> random.Random:
    """Return random numbers that are the same each time."""
    return random.Random(seed)  # noqa: S311


def random_graph(rng: random.Random, characters: str = CHARACTERS) -> Graph:
    """Return statements about some concepts, a scheme, blank nodes and things that are none."""
    graph = Graph()
    subjects = [URIRef(each) for each in rng.sample(IDS, rng.randrange(1, len(IDS)))]
    for subject in [*subjects, BNode()]:
        if rng.random() < 0.7:
            graph.add((subject, RDF.type, rng.choice([SKOS.Concept, SKOS.Concept, OWL.Thing])))
        for _ in range(rng.randrange(6)):
            language = rng.choice([None, "en", "fi", "en-GB", "zh-Hant-TW"])
            predicate = rng.choice([*TEXTS.values(), SKOS.prefLabel, SKOS.note])
            graph.add((subject, predicate, Literal(random_text(rng, characters), language)))
        for _ in range(rng.randrange(3)):
            predicate = rng.choice([SKOS[name] for name in (*RELATIONS, "exactMatch")])
            graph.add((subject, predicate, URIRef(rng.choice([*IDS, "urn:elsewhere"]))))
        if rng.random() < 0.3:
            typed = [Literal("4.2", datatype=URIRef("urn:t")), Literal(7), Literal("x y")]
            graph.add((subject, SKOS.notation, rng.choice(typed)))
        if rng.random() < 0.3:
            graph.add((subject, OWL.deprecated, Literal(rng.random() < 0.5)))
    scheme = URIRef("urn:scheme")
    graph.add((scheme, RDF.type, SKOS.ConceptScheme))
    graph.add((scheme, SKOS.prefLabel, Literal("all")))
    graph.add((URIRef("urn:always"), RDF.type, SKOS.Concept))
    return graph


def random_text(rng: random.Random, characters: str) -> str:
    return "".join(rng.choices(characters, k=rng.randrange(8)))


def concepts_of(graph: Graph) -> dict[str, dict[str, object]]:
    """Return what rdflib's graph says of each concept that has a URI, as plain sets."""
    typed = set(graph.subjects(RDF.type, SKOS.Concept))
    named = {s for s, o in graph.subject_objects(SKOS.prefLabel) if isinstance(o, Literal)}
    named -= set(graph.subjects(RDF.type, SKOS.ConceptScheme)) | set(
        graph.subjects(RDF.type, SKOS.Collection)
    )
    concepts = {x for x in typed | named if isinstance(x, URIRef)}
    return {str(concept): _of_concept(graph, concept, concepts) for concept in concepts}


def _of_concept(graph: Graph, concept: URIRef, concepts: set[URIRef]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, predicate in TEXTS.items():
        found[name] = {
            ((text.language or "").lower(), str(text).strip())
            for text in graph.objects(concept, predicate)
            if isinstance(text, Literal) and str(text).strip()
        }
    inverse = {"broader": "narrower", "narrower": "broader", "related": "related"}
    for name, other in inverse.items():
        there = set(graph.objects(concept, SKOS[name]))
        back = set(graph.subjects(SKOS[other], concept))
        found[name] = {str(each) for each in (there | back) & concepts}
    found["notations"] = {str(each) for each in graph.objects(concept, SKOS.notation)}
    truths = {str(each) for each in graph.objects(concept, OWL.deprecated)}
    found["is_deprecated"] = bool(truths & {"true", "1"})
    return found


def as_sets(vocabulary) -> dict[str, dict[str, object]]:
    """Return a vocabulary as `concepts_of` does; second names count as preferred ones again."""
    return {
        concept.id: {
            "names": set(concept.names.items()),
            **{
                name: {
                    (each, text) for each, all_ in getattr(concept, name).items() for text in all_
                }
                for name in ("other_names", "hidden_names", "definitions")
            },
            **{name: set(getattr(concept, name)) for name in (*RELATIONS, "notations")},
            "is_deprecated": concept.is_deprecated,
        }
        for concept in vocabulary.concepts
    }


def check_same(vocabulary, graph: Graph) -> None:
    """Assert that a vocabulary is what rdflib sees."""
    expected, found = concepts_of(graph), as_sets(vocabulary)
    assert list(found) == sorted(expected)
    for id_, concept in expected.items():
        names = concept.pop("names")
        first = {language: min(t for x, t in names if x == language) for language, _ in names}
        concept["names"] = set(first.items())
        concept["other_names"] |= names - concept["names"]
        assert found[id_] == concept


def random_turtle(rng: random.Random, graph: Graph) -> str:
    """Return a graph as Turtle in a style of its own, with all that the fast reader reads."""
    lines = [
        rng.choice([f"@prefix {p}: <{iri}> .", f"PREFIX {p}: <{iri}>", f"prefix {p}:\n <{iri}>"])
        for p, iri in PREFIXES.items()
    ]
    lines.append(rng.choice([f"@base <{BASE}> .", f"BASE <{BASE}>"]))
    for subject in sorted(set(graph.subjects())):
        pairs = []
        for predicate in sorted(set(graph.predicates(subject))):
            objects = sorted(graph.objects(subject, predicate))
            shown = _gap(rng) + "," + _gap(rng)
            verb = "a " if predicate == RDF.type else _node(rng, predicate) + " "
            pairs.append(verb + shown.join(_term(rng, each) for each in objects))
        between = rng.choice([";", " ;", ";;", "; # ; .\n;"])
        end = rng.choice(["", between])
        lines.append(
            f"{_node(rng, subject)}{_gap(rng)} {(between + _gap(rng)).join(pairs)}{end}{_gap(rng)}."
        )
    return rng.choice(["\n", "\r\n", '\n# <comment> . "\n']).join(lines) + rng.choice(["", "\n"])


def _gap(rng: random.Random) -> str:
    return rng.choice([" ", "\n", " \t", '\n  # it\'s "a" comment .\n'])


def _term(rng: random.Random, term: rdflib.term.Node) -> str:
    if not isinstance(term, Literal):
        return _node(rng, term)
    if term.datatype == XSD.boolean and rng.random() < 0.5:
        return f"{str(term).lower()} "
    if term.datatype == XSD.integer and rng.random() < 0.5:
        return f"{term} "
    mark = rng.choice(['"', "'", '"""', "'''"])
    text = "".join(_character(rng, each, mark) for each in term)
    if term.language:
        return f"{mark}{text}{mark}@{term.language}"
    datatype = "" if term.datatype is None else f"^^{_node(rng, term.datatype)}"
    return f"{mark}{text}{mark}{datatype}"


def _character(rng: random.Random, character: str, mark: str) -> str:
    escapes = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "'": "\\'", "\\": "\\\\"}
    long = len(mark) == 3
    must = character == "\\" or character == mark[0] or (character in "\n\r" and not long)
    # A quote before the end of a long text, or three of them, must be escaped: all are.
    if rng.random() < 0.1:
        return f"\\U{ord(character):08x}"
    if must or (character in escapes and rng.random() < 0.5):
        return escapes[character]
    return character


def _node(rng: random.Random, node: rdflib.term.Node) -> str:
    if isinstance(node, BNode):
        return rng.choice([f"_:{node}", f"_:a.{node}-b"])
    for prefix, iri in PREFIXES.items():
        local = str(node).removeprefix(iri)
        if str(node).startswith(iri) and local not in {"-q"} and rng.random() < 0.6:
            for special in ",#/":
                local = local.replace(special, f"\\{special}")
            return f"{prefix}:{local}"
    if str(node).startswith(BASE) and rng.random() < 0.3:
        return f"<{str(node).removeprefix(BASE)}>"
    return f"<{node}>"
