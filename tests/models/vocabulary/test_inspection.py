"""Levels, circles and suspicious things of a vocabulary, against plain searches."""

import random

from longtail.models.vocabulary.assembling import assemble
from longtail.models.vocabulary.concept import CONCEPT, Concept, Facts, LeftOut, Vocabulary
from longtail.models.vocabulary.inspection import hierarchy_of, inspect_vocabulary


def random_vocabulary(rng) -> Vocabulary:
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


def test_numbers_and_what_may_be_wrong():
    concepts = (
        Concept("a", {"en": "x", "fi": "z"}, {"sv": ("s", "t")}, notations=("1",), broader=("a",)),
        Concept("b", {"en": "x"}, definitions={"en": ("d",)}, hidden_names={"en": ("h",)}),
        Concept("c", {"fi": "x"}),
        Concept("d", {"en": "x"}, is_deprecated=True),
        Concept("e"),
    )
    found = inspect_vocabulary(Vocabulary(concepts, 3, LeftOut(unknown_broader=2)))
    assert list(found.languages) == ["en", "fi", "sv"]
    assert found.languages["en"].names == 3 and found.languages["en"].hidden_names == 1
    assert found.languages["sv"].other_names == 2 and found.languages["en"].definitions == 1
    assert (found.num_concepts, found.num_deprecated, found.num_notations) == (5, 1, 1)
    assert found.equal_names == (("en", "x", ("a", "b")),) and found.nameless == ("e",)
    text = "\n".join(found.suspicions())
    assert "1 names are those of several concepts, such as 'x' (en) of a and b" in text
    assert "1 concepts have no preferred name, such as e" in text
    assert "3 preferred names are a second one" in text
    assert "1 concepts are in 1 circles of broader concepts, such as a" in text
    assert "2 broader or narrower concepts are not in the file" in text
    assert found.to_json()["hierarchy"]["cycles"] == (("a",),)
