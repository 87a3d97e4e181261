"""Finding labels by words, against a search through all of them."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.search import LabelSearch
from longtail.models.scorers.word_forms import WordForms

LABELS = (
    Label("1264", "olive oil", training_count=5),
    Label("http://x.org/Olive_1", "Olive", description="A fruit", training_count=2),
    Label("c", "oil of olives", training_count=9),
    Label("d", "imports", pseudo_description="imports. olive oil trade", training_count=5),
    Label("e", "Caf\u00e9 cr\u00e8me", description="hot  drinks", training_count=1),
    Label("f", "Stra\u00dfe", training_count=1),
    Label("olive", "petroleum", training_count=0),
    Label("h", "??", training_count=50),
    Label("i", "imports", training_count=5),
    Label("j", "\u0418\u0437\u044e\u043c", training_count=1),
)
SEARCH = LabelSearch(LabelCatalogue(LABELS))


def found(query: str, **page: int) -> list[str]:
    labels = SEARCH.find(query, **{"limit": 100} | page).labels
    return [LABELS[index].id for index in labels]


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        # Name or id is it, begins so, all words in the name, elsewhere.
        ("olive", ["http://x.org/Olive_1", "olive", "1264", "c", "d"]),
        ("olive oil", ["1264", "c", "d"]),
        ("OIL oliv", ["c", "1264", "d"]),
        ("oil trade", ["d"]),
        ("1264", ["1264"]),
        ("http://x.org/olive_1", ["http://x.org/Olive_1"]),
        ("imports", ["d", "i"]),
        ("CAF\u00c9 CREME", ["e"]),
        ("cafe\u0301", ["e"]),
        ("strasse", ["f"]),
        ("\u0438\u0437\u044e\u043c", ["j"]),
        ("olive nothing", []),
        ("live", []),
    ],
)
def test_labels_come_by_how_well_they_fit_then_by_training_documents(query, ids):
    assert found(query) == ids


WORDS = st.sampled_from(["a", "ab", "abc", "\u00c4b", "b", "ba", "1", "c-d", "", "A b"])
NAMES = st.lists(st.tuples(WORDS, WORDS, WORDS, st.integers(0, 2)), min_size=1, max_size=12)


@given(NAMES, st.lists(WORDS, max_size=2).map(" ".join))
def test_the_index_finds_what_a_look_at_every_label_finds(rows, query):
    labels = [
        Label(f"{one} {number}", f"{one} {two}", three, training_count=count)
        for number, (one, two, three, count) in enumerate(rows)
    ]
    search = LabelSearch(LabelCatalogue(labels))
    result = search.find(query, limit=5, offset=1)
    tiers = [(tier_of(label, query), -label.training_count, i) for i, label in enumerate(labels)]
    wanted = sorted(each for each in tiers if each[0] is not None)
    assert result.total == len(wanted)
    assert list(result.labels) == [index for *_, index in wanted[1:6]]
    numbers = np.array([count or np.nan for *_, count in rows])  # nan comes last
    wanted.sort(key=lambda each: (np.isnan(numbers[each[-1]]), rows[each[-1]][-1]))
    result = search.find(query, limit=5, offset=1, by=numbers)
    assert list(result.labels) == [index for *_, index in wanted[1:6]]


def tier_of(label: Label, query: str) -> int | None:
    """The oracle: as the documentation of `LabelSearch.find` says."""

    def plain(text: str) -> str:
        parts = unicodedata.normalize("NFKD", text.lower())
        return "".join(part for part in parts if not unicodedata.combining(part))

    def has_all(text: str) -> bool:
        return all(any(each.startswith(word) for each in split(text)) for word in words)

    def split(text: str) -> list[str]:
        return re.findall(r"[a-z0-9]+", plain(text))

    words, whole = split(query), plain(query).strip()
    starts = [plain(label.name).strip(), plain(label.id).strip()]
    fits = [
        not words or whole in starts,
        any(start.startswith(whole) for start in starts),
        has_all(label.name),
        has_all(f"{label.name} {label.id} {label.description}"),
    ]
    return fits.index(True) if any(fits) else None


def test_an_inflected_word_finds_the_name_by_its_stem():
    names = ["Gießkanne", "Kindergarten", "Gießen"]
    catalogue = LabelCatalogue(Label(f"L{row}", name) for row, name in enumerate(names))
    search = LabelSearch(catalogue, stem_of=WordForms(["de"]).of)
    assert search.find("gießkannen", limit=5).labels == (0,)
    assert search.find("Kindergartens", limit=5).labels == (1,)
    assert search.find("gießk", limit=5).labels == (0,)
    assert search.find("xyz", limit=5).total == 0
