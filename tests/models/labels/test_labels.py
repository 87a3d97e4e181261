"""The label catalogue: order, look-up, and its text form."""

import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.errors import DataError
from longtail.models.labels.catalogue import Label, LabelCatalogue, with_names_of_parents
from longtail.models.labels.concepts import labels_of, without_deprecated
from longtail.models.labels.files import OWN_FORM, form_of, read_label_file
from longtail.models.labels.filters import LabelFilter
from longtail.models.labels.hierarchy import LabelHierarchy
from longtail.models.labels.search import LabelSearch
from longtail.models.labels.selection import LabelSelector
from longtail.models.scorers.word_forms import WordForms
from longtail.models.vocabulary.concept import Concept, ConceptVocabulary, LeftOutStatements

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FIELDS = st.fixed_dictionaries({
    "id": TEXT,
    "name": TEXT,
    "description": TEXT,
    "pseudo_description": TEXT,
    "training_count": st.integers(0, 10**9),
    "alternative_names": st.lists(TEXT, max_size=2),
    "parents": st.lists(TEXT, max_size=2),
})  # fmt: skip


@pytest.fixture
def catalogue():
    return LabelCatalogue(
        [Label("a", "River", training_count=3), Label("b", "a"), Label("c", "Bank"),
         Label("d", "Bank", training_count=1)]
    )  # fmt: skip


def test_a_label_is_found_by_its_id_or_else_by_its_name(catalogue):
    assert catalogue.index_of("d") == 3
    assert catalogue.index_of("River") == 0
    assert catalogue.index_of("a") == 0  # the id, though another label has this name


def test_a_name_of_several_labels_is_refused_with_their_ids(catalogue):
    with pytest.raises(DataError, match=r"2 labels are named 'Bank' \(ids 'c', 'd'\); use the id"):
        catalogue.index_of("Bank")


def test_no_labels_and_equal_ids_are_refused():
    with pytest.raises(DataError, match="no labels; give at least one"):
        LabelCatalogue([])
    with pytest.raises(DataError, match="id 'b' occurs twice"):
        LabelCatalogue([Label("a", "A"), Label("b", "B"), Label("b", "C")])


@given(st.lists(FIELDS, min_size=1, max_size=5, unique_by=lambda fields: fields["id"]))
def test_a_catalogue_comes_back_from_its_lines(rows):
    lists = ("alternative_names", "parents")
    labels = [Label(**row | {name: tuple(row[name]) for name in lists}) for row in rows]
    text = LabelCatalogue(labels).to_jsonl()
    assert list(LabelCatalogue.from_jsonl(text)) == labels
    assert text.count("\n") == len(labels)


def catalogue_of(broader: list[list[int]], **options) -> LabelCatalogue:
    """Labels by number, each with the numbers of its broader ones."""
    labels = (
        Label(f"L{row}", f"label {row}", broader=tuple(f"L{each}" for each in above))
        for row, above in enumerate(broader)
    )
    return LabelCatalogue(labels, **options)


ANIMALS = catalogue_of([[], [0], [0], [1, 2], [], [99]])
"""0 over 1 and 2, both over 3; 4 alone; 5 below a concept that is no label."""


def test_relations_go_both_ways_and_end_at_the_catalogue():
    hierarchy = LabelHierarchy(ANIMALS)
    assert hierarchy.narrower(0) == (1, 2)
    assert hierarchy.broader(3) == (1, 2)
    assert hierarchy.below(0).tolist() == [0, 1, 2, 3]
    assert hierarchy.above(3).tolist() == [0, 1, 2, 3]
    assert hierarchy.tops == [0]
    assert hierarchy.broader(5) == () and hierarchy.below(5).tolist() == [5]
    assert bool(hierarchy) and ANIMALS.has_hierarchy
    plain = catalogue_of([[], [99]])
    assert not LabelHierarchy(plain) and not plain.has_hierarchy


@given(st.lists(st.lists(st.integers(0, 9), max_size=2), min_size=10, max_size=10))
def test_every_label_with_relations_is_below_a_top(broader):
    hierarchy = LabelHierarchy(catalogue_of(broader))
    below = {each for top in hierarchy.tops for each in hierarchy.below(top).tolist()}
    for row in range(10):
        assert (row in below) == bool(hierarchy.narrower(row) or hierarchy.broader(row))
    for top in hierarchy.tops:  # no top stands below another one
        others = (hierarchy.below(each).tolist() for each in hierarchy.tops if each != top)
        assert all(top not in found for found in others)


@given(
    st.integers(1, 12).flatmap(
        lambda size: st.lists(
            st.lists(st.integers(0, size), max_size=3), min_size=size, max_size=size
        )
    )
)
def test_ancestors_are_the_transitive_closure(broader):
    size = len(broader)
    step = np.eye(size, dtype=bool)
    for row, above in enumerate(broader):
        step[row, [each for each in above if each < size]] = True
    closure = step
    for _ in range(size):
        closure = (closure.astype(int) @ step) > 0
    hierarchy = LabelHierarchy(catalogue_of(broader))
    assert (hierarchy.ancestors().toarray() > 0).tolist() == closure.tolist()
    for row in range(size):
        assert hierarchy.below(row).tolist() == np.flatnonzero(closure[:, row]).tolist()


def select(catalogue: LabelCatalogue = ANIMALS, **fields) -> list[int]:
    found = LabelSelector(catalogue).select(LabelFilter(**fields))
    assert found is not None
    return found.labels.tolist()


def test_under_keeps_a_label_and_all_below_it():
    assert select(under=("L1",)) == [1, 3]
    assert select(under=("L1", "L4")) == [1, 3, 4]
    assert select(under=("L0",), exclude=("L3",)) == [0, 1, 2]
    assert select(under=("L0",), include=("L2", "L4")) == [2]
    assert select(under=("L4",), include=("L2",)) == []
    assert not LabelFilter(under=("L0",)).is_empty


def written(folder: Path, *labels: dict[str, object], name: str = "labels.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(label) + "\n" for label in labels))
    return path


def refusal(path: Path, form=OWN_FORM) -> str:
    with pytest.raises(DataError) as caught:
        read_label_file(path, form)
    return str(caught.value)


def test_a_label_may_have_schemes(tmp_path):
    rows = [{"scheme": "topic"}, {"scheme": ["genre", " topic "]}, {"scheme": None}, {}]
    lines = ({"id": number, "name": "a", **row} for number, row in enumerate(rows))
    expected = [("topic",), ("genre", "topic"), (), ()]
    labels = read_label_file(written(tmp_path, *lines), OWN_FORM)
    assert [label.scheme for label in labels] == expected
    catalogue = LabelCatalogue(labels)
    assert [x.scheme for x in LabelCatalogue.from_jsonl(catalogue.to_jsonl())] == expected
    rows_of_schemes = {name: x.tolist() for name, x in catalogue.rows_of_schemes.items()}
    assert rows_of_schemes == {"topic": [0, 1], "genre": [1]}
    table = tmp_path / "labels.csv"
    table.write_text("id,name,scheme\n0,a,topic\n1,a,genre; topic\n2,a,\n3,a,\n")
    assert [label.scheme for label in read_label_file(table, OWN_FORM)] == expected
    table = tmp_path / "labels.tsv"
    table.write_text("id\tname\tscheme\n0\ta\ttopic\n1\ta\tgenre; topic\n2\ta\t\n3\ta\t\n")
    assert form_of(table) is OWN_FORM
    assert [label.scheme for label in read_label_file(table, OWN_FORM)] == expected
    table.write_text("<u:0>\ta name\n")  # Annif's
    assert [(x.id, x.name) for x in read_label_file(table, OWN_FORM)] == [("u:0", "a name")]


def test_equal_ids_are_refused_with_both_lines(tmp_path):
    path = written(
        tmp_path, {"id": "1", "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"}
    )
    assert "labels.jsonl, line 3: id '1' again, as on line 1" in refusal(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"id": "1", "name": "a"}\n{', r"labels.jsonl, line 2: not JSON"),
        (b'{"id": "1", "name": 2}', "line 1: name is 2 (int); expected a string"),
        (b'{"id": "1", "name": " "}', "line 1: no 'name'; the line has 'id', 'name'"),
        (b'{"id": "1", "name": "\\ud800"}', "name holds '\\ud800', half of a surrogate pair"),
        (b"\xff", "line 1: not UTF-8 (byte 0xff at position 0)"),
    ],
)
def test_a_file_that_is_none_of_labels_is_refused(tmp_path, content, words):
    path = tmp_path / "labels.jsonl"
    path.write_bytes(content)
    assert form_of(path) is OWN_FORM
    assert words in refusal(path)


RICH = Concept(
    "u:r", {"en": "river", "fi": "joki", "": "R"},
    {"en": ("stream",), "sv": ("å",), "fi": ("joki",)}, {"en": ("rivr",), "fi": ("river",)},
    ("1.2", "1.3"), {"fi": ("vesi",), "en": ("water.", "flows.")}, broader=("u:w",),
    scheme=("u:s", "u:t"),
)  # fmt: skip
CONCEPTS = (
    RICH, Concept("u:w", {"fi": "vesi", "sv": "vatten"}),
    Concept("u:o", {"en": "old"}, is_deprecated=True), Concept("u:x", other_names={"sv": ("x",)}),
    Concept("u:y", notations=("7",)), Concept("u:z"),
)  # fmt: skip
VOCABULARY = ConceptVocabulary(CONCEPTS, 2, LeftOutStatements(unknown_broader=3))
TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<u:a> skos:prefLabel "A"@en, "Ä"@fi ; skos:broader <u:b> .
<u:b> skos:prefLabel "B"@en ; skos:broader <u:a> .
<u:c> skos:prefLabel "C"@en ; <http://www.w3.org/2002/07/owl#deprecated> true .
"""


def test_the_language_of_most_concepts_is_shown_and_all_else_is_kept(caplog):
    labels = labels_of(VOCABULARY, "v.ttl")
    assert labels[0] == Label(
        "u:r",
        "river",
        "water. flows.",
        alternative_names=("stream", "joki", "R", "å", "rivr"),
        parents=("u:w",),
        names={"en": "river", "fi": "joki"},
        notation="1.2",
        broader=("u:w",),
        scheme=("u:s", "u:t"),
    )
    assert [label.name for label in labels] == ["river", "vesi", "old", "x", "7", "u:z"]
    assert labels[1].alternative_names == ("vatten",) and labels[2].is_deprecated
    told = caplog.text
    assert "v.ttl: names are shown in en, as most concepts have one in it" in told
    assert "there are en (2), fi (2), no language tag (1), sv (1)" in told
    assert "1 concept has no name in en; another is shown" in told
    assert "3 concepts have no preferred name; another" in told
    assert "2 preferred names are a second one" in told
    assert "3 broader or narrower concepts are not in the file" in told


def test_deprecated_concepts_are_labels_only_where_documents_carry_them(caplog):
    labels = labels_of(VOCABULARY, "v.ttl")
    assert without_deprecated(labels, "v.ttl", {"u:o"}) == labels
    assert without_deprecated(labels, "v.ttl") == [x for x in labels if x.id != "u:o"]
    assert "v.ttl: 1 deprecated concepts are no labels" in caplog.text


def test_a_vocabulary_is_a_label_file(tmp_path, caplog):
    path = tmp_path / "labels.ttl"
    path.write_text(TURTLE)
    assert form_of(path) is OWN_FORM
    labels = read_label_file(path, form_of(path), language="fi")
    assert [(label.id, label.name) for label in labels] == [("u:a", "Ä"), ("u:b", "B")]
    assert "2 concepts are in 1 circle of broader concepts, such as u:a and u:b" in caplog.text
    named = with_names_of_parents(labels, labels)
    assert (named[0].parents, named[0].broader) == (("B",), ("u:b",))
    assert len(read_label_file(path, OWN_FORM, keep_deprecated=True)) == 3


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
