"""What differs between two states of a vocabulary, as plain dictionaries tell it."""

import random
from dataclasses import replace

import pytest

from longtail.ext.editions.changes import TEXT_FIELDS, VocabularyChanges, texts_of
from longtail.ext.editions.difference import difference
from longtail.models.labels.catalogue import Label

IDS = [f"u:{letter}" for letter in "abcdefghijkl"]


def random_label(rng: random.Random, label_id: str) -> Label:
    is_deprecated = rng.random() < 0.3
    others = rng.sample(IDS, rng.randrange(3))
    return Label(
        label_id,
        rng.choice(["fish", "law", "port"]),
        rng.choice(["", "a text"]),
        alternative_names=tuple(rng.sample(["x", "y"], rng.randrange(3))),
        names={"fi": "kala"} if rng.random() < 0.3 else {},
        notation=rng.choice(["", "1.2"]),
        scheme=tuple(sorted(rng.sample(["topic", "genre"], rng.randrange(3)))),
        broader=tuple(rng.sample(IDS, rng.randrange(3))),
        is_deprecated=is_deprecated,
        replaced_by=tuple(x for x in others if is_deprecated and x != label_id),
    )


def state(rng: random.Random) -> dict[str, Label]:
    ids = rng.sample(IDS, rng.randrange(1, len(IDS)))
    return {label_id: random_label(rng, label_id) for label_id in ids}


def uses(labels: dict[str, Label], label_id: str) -> bool:
    return label_id in labels and not labels[label_id].is_deprecated


def replaced_by(labels: dict[str, Label], older: dict[str, Label], label_id: str) -> set[str]:
    """Return what is reached over deprecated labels, one step at a time until nothing is new."""
    reached = {label_id}
    while True:
        more = {
            other
            for each in reached
            if not uses(labels, each)
            for other in (labels if each in labels else older).get(each, Label("", "")).replaced_by
        }
        if more <= reached:
            return {each for each in reached - {label_id} if uses(labels, each)}
        reached |= more


@pytest.mark.parametrize("seed", range(150))
def test_every_label_is_in_the_lists_that_dictionaries_tell(seed):
    rng = random.Random(seed)  # noqa: S311
    old, new = state(rng), state(rng)
    found = difference(rng.sample([*old.values()], len(old)), new.values())
    assert [x.id for x in found.new] == sorted(x for x in new if x not in old and uses(new, x))
    both = sorted(x for x in old if uses(new, x))
    texts = {x: [getattr(each[x], name) for name in TEXT_FIELDS] for each in (old,) for x in each}
    changed = [x for x in both if texts[x] != [getattr(new[x], name) for name in TEXT_FIELDS]]
    assert [x.id for x in found.renamed] == changed
    for each in found.renamed:
        assert replace(old[each.id], **texts_of(each)) == replace(
            old[each.id], **{name: getattr(new[each.id], name) for name in TEXT_FIELDS}
        )
    moved = [x for x in both if set(old[x].broader) != set(new[x].broader)]
    assert [(x.id, x.after) for x in found.reparented] == [(x, new[x].broader) for x in moved]
    assert found.restored == tuple(x for x in both if old[x].is_deprecated)
    out = {
        x: replaced_by(new, old, x)
        for x in sorted(old)
        if not uses(new, x) and (uses(old, x) or replaced_by(new, old, x) - replaced_by(old, {}, x))
    }
    told = {x.id: set(x.by) for x in (*found.merged, *found.split)}
    told |= {x.id: set() for x in found.deprecated}
    # Fewer replacements than before are a change, too.
    assert {x: by for x, by in told.items() if x in out} == out
    assert all(told[x] and told[x] < replaced_by(old, {}, x) for x in told.keys() - out.keys())
    assert all(x.is_gone == (x.id not in new) for x in (*found.merged, *found.deprecated))
    again = VocabularyChanges.from_json(found.to_json(), "changes")
    assert again == found
    assert bool(difference(new.values(), new.values())) is False
