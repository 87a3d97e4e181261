"""Corpora whose labels come from a SKOS vocabulary."""

import logging

import pytest

from longtail.training.data.dataset import open_dataset

TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix : <http://x/> .
:fish a skos:Concept ; skos:prefLabel "fish"@en, "kala"@fi ; skos:notation "639" .
:cod a skos:Concept ; skos:prefLabel "cod"@en, "turska"@fi ; skos:broader :fish .
:old a skos:Concept ; skos:prefLabel "old"@en ; owl:deprecated true .
:older a skos:Concept ; skos:prefLabel "older"@en ; owl:deprecated true .
"""


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "vocabulary.ttl").write_text(TURTLE)
    (tmp_path / "train.tsv").write_text(
        "cods swim\t<http://x/cod> <http://x/fish>\nthis was\t<http://x/old>\n"
    )
    return tmp_path


def test_concepts_are_labels_and_deprecated_ones_only_where_documents_carry_them(corpus, caplog):
    with caplog.at_level(logging.WARNING):
        dataset = open_dataset(corpus)
        catalogue = dataset.catalogue
    assert [label.id for label in catalogue] == ["http://x/cod", "http://x/fish", "http://x/old"]
    assert catalogue.training_counts.tolist() == [1, 1, 1]
    cod, fish, _ = catalogue
    assert cod.broader == ("http://x/fish",) and cod.parents == ("fish",)
    assert (cod.name, cod.alternative_names, cod.names["fi"]) == ("cod", ("turska",), "turska")
    assert fish.notation == "639"
    assert "1 deprecated concepts are no labels" in caplog.text
