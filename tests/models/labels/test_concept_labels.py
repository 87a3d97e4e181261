"""Labels of vocabularies: the language that is shown, what is logged, and files of such labels."""

from longtail.models.labels.catalogue import Label, with_names_of_parents
from longtail.models.labels.concepts import labels_of, without_deprecated
from longtail.models.labels.files import OWN_FORM, form_of, read_label_file
from longtail.models.vocabulary.concept import Concept, ConceptVocabulary, LeftOutStatements

RICH = Concept(
    "u:r",
    {"en": "river", "fi": "joki", "": "R"},
    {"en": ("stream",), "sv": ("å",), "fi": ("joki",)},
    {"en": ("rivr",), "fi": ("river",)},
    ("1.2", "1.3"),
    {"fi": ("vesi",), "en": ("water.", "flows.")},
    broader=("u:w",),
    scheme=("u:s", "u:t"),
)
CONCEPTS = (
    RICH,
    Concept("u:w", {"fi": "vesi", "sv": "vatten"}),
    Concept("u:o", {"en": "old"}, is_deprecated=True),
    Concept("u:x", other_names={"sv": ("x",)}),
    Concept("u:y", notations=("7",)),
    Concept("u:z"),
)
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
    assert "1 concepts have no name in en and show another" in told
    assert "3 concepts have no preferred name and show another" in told
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
    assert "2 concepts are in 1 circles of broader concepts, such as u:a and u:b" in caplog.text
    named = with_names_of_parents(labels, labels)
    assert (named[0].parents, named[0].broader) == (("B",), ("u:b",))
    assert len(read_label_file(path, OWN_FORM, keep_deprecated=True)) == 3
