"""Levels, circles and suspicious things of a vocabulary, against plain searches."""

import random

from longtail.models.vocabulary.concept import CONCEPT, Concept, ConceptVocabulary, Facts
from longtail.models.vocabulary.inspection import hierarchy_of
from longtail.models.vocabulary.reading import assemble


def random_vocabulary(rng) -> ConceptVocabulary:
    facts: Facts = {str(i): [("type", CONCEPT, None)] for i in range(rng.randrange(1, 12))}
    for about in facts.values():
        for _ in range(rng.randrange(3)):
            name = rng.choice(["broader", "narrower"])
            about.append((name, rng.choice([*facts]), None))
    return assemble(facts)


def reachable(concepts: dict[str, Concept], start: str) -> set[str]:
    """Return what is broader than a concept, however far."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for each in set(concepts[waiting.pop()].broader) - found:
            found.add(each)
            waiting.append(each)
    return found


def test_circles_are_those_of_a_plain_search():
    seen = 0
    for seed in range(300):
        concepts = random_vocabulary(random.Random(seed)).concepts  # noqa: S311
        by_id = {concept.id: concept for concept in concepts}
        above = {id_: reachable(by_id, id_) for id_ in by_id}
        expected = {
            tuple(sorted(other for other in by_id if other in above[id_] and id_ in above[other]))
            for id_ in by_id
            if id_ in above[id_]
        }
        assert set(hierarchy_of(concepts).cycles) == expected
        seen += len(expected)
    assert seen > 50


def test_levels_are_those_of_a_plain_search():
    for seed in range(300):
        concepts = random_vocabulary(random.Random(seed)).concepts  # noqa: S311
        tops = [x for x in concepts if set(x.broader) <= {x.id}]
        depth = {concept.id: 1 for concept in tops}
        for _ in concepts:
            for concept in concepts:
                ways = [depth[each] + 1 for each in concept.broader if each in depth]
                if ways and concept.broader:
                    depth[concept.id] = min([*ways, depth.get(concept.id, 99)])
        found = hierarchy_of(concepts)
        assert found.num_levels == max(depth.values(), default=0)
        assert found.num_alone == sum(set(x.narrower) <= {x.id} for x in tops)
        assert found.num_top + found.num_alone == len(tops)
