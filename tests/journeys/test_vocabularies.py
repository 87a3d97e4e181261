"""A person with a vocabulary: what is in it, other forms of it, and labels for a model."""

import json

import pytest

TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix ex: <http://example.org/> .
ex:fish a skos:Concept ; skos:prefLabel "fish"@en, "kala"@fi ; skos:altLabel "fishes"@en .
ex:eel a skos:Concept ; skos:prefLabel "eel"@en ; skos:broader ex:fish ; skos:notation "1.2" .
ex:old a skos:Concept ; skos:prefLabel "old"@en ;
    <http://www.w3.org/2002/07/owl#deprecated> true .
"""


@pytest.fixture
def vocabulary(place):
    (place / "v.ttl").write_text(TURTLE)


@pytest.mark.usefixtures("vocabulary")
def test_show_tells_numbers_and_what_may_be_wrong(run, place):
    shown = run("vocabulary", "show", "v.ttl")
    assert shown.status == 0
    assert "concepts:        3, 1 of them deprecated" in shown.out
    assert "levels:          2" in shown.out and "May be wrong" not in shown.out
    (place / "twice.tsv").write_text("<u:a>\tx\n<u:b>\tx\n")
    assert "1 name is that of several" in run("vocabulary", "show", "twice.tsv").out
    found = json.loads(run("vocabulary", "show", "v.ttl", "--json").out)
    assert found["num_concepts"] == 3 and list(found["languages"]) == ["en", "fi"]


@pytest.mark.usefixtures("vocabulary")
def test_convert_writes_labels_that_a_model_takes(run, place):
    assert run("vocabulary", "show", "v.ttl", "--output", "l.jsonl", "--language", "fi").status == 0
    labels = [json.loads(line) for line in (place / "l.jsonl").read_text().splitlines()]
    assert [label["name"] for label in labels] == ["eel", "kala"]
    assert labels[0]["broader"] == ["http://example.org/fish"]
    assert run("vocabulary", "show", "v.ttl", "--output", "l.csv", "--keep-deprecated").status == 0
    assert len((place / "l.csv").read_text().splitlines()) == 4
    assert run("vocabulary", "show", "v.ttl", "--output", "l.tsv").status == 0
    tsv = "<http://example.org/eel>\teel\t1.2\n<http://example.org/fish>\tfish\n"
    assert (place / "l.tsv").read_text() == tsv


@pytest.mark.usefixtures("vocabulary")
def test_convert_to_another_syntax_loses_nothing(run):
    before = run("vocabulary", "show", "v.ttl", "--json").out
    for name in ("w.nt", "w.ttl"):
        assert run("vocabulary", "show", "v.ttl", "--output", name).out.endswith(
            f"Written: {name}\n"
        )
        assert run("vocabulary", "show", name, "--json").out == before


@pytest.fixture
def editions(place):
    """A next edition of the labels of the model in `registry`: one renamed, merged, gone, new."""
    lines = (place / "data" / "labels.jsonl").read_text().splitlines()
    first, second, third, fourth, *rest = [json.loads(line) for line in lines]
    ids = dict(zip("abcd", (x["id"] for x in (first, second, third, fourth)), strict=True))
    first["name"] = "another name"
    second |= {"is_deprecated": True, "replaced_by": [third["id"]]}
    new = {"id": "new", "name": "newly made"}
    labels = [first, second, third, *rest, new]
    (place / "next.jsonl").write_text("".join(json.dumps(x) + "\n" for x in labels))
    return ids


def test_a_model_follows_the_next_edition_of_its_vocabulary(run, place, editions):
    shown = run("vocabulary", "diff", "registry", "next.jsonl", "--json", "c.json")
    counts = {x.split(":")[0]: int(x.split()[1]) for x in shown.out.splitlines() if x[0] != " "
              and not x.startswith("Written")}  # fmt: skip
    assert counts == {
        "new": 1, "renamed": 1, "merged": 1, "split": 0, "deprecated": 0, "gone": 1, "restored": 0,
        "re-parented": 0,
    }  # fmt: skip
    told = json.loads(run("vocabulary", "apply", "c.json", "--json").out)
    assert (told["version"], told["current"], told["num_retired"], told["num_new"]) == (2, 1, 2, 1)
    assert [x["merged"] for x in told["merged"]] == [[editions["b"]]]
    again = run("vocabulary", "apply", "next.jsonl", "--activate", "--version", "1")
    assert again.out.startswith("Version 2 has ") and "Current is version 2." in again.out
    assert "2 of them retired" in run("registry", "show").out
    assert "nothing is written" in run("vocabulary", "apply", "next.jsonl").err
    assert not any(x["id"] in (editions["b"], editions["d"]) for x in answers(run, place))


def answers(run, place) -> list[dict]:
    """Return all labels that the current version gives to some documents."""
    (place / "out.jsonl").unlink(missing_ok=True)
    done = run("predict", "--input", "docs.jsonl", "--output", "out.jsonl", "-k", "310")
    assert done.status == 0, done
    lines = (place / "out.jsonl").read_text().splitlines()
    return [label for line in lines for label in json.loads(line)["labels"]]


def test_a_vocabulary_of_which_much_is_gone_is_applied_by_force_alone(run, place):
    lines = (place / "data" / "labels.jsonl").read_text().splitlines()
    (place / "cut.jsonl").write_text("\n".join(lines[: len(lines) // 2]))
    refused = run("vocabulary", "apply", "cut.jsonl")
    assert refused.status == 1 and "labels are gone" in refused.last_line
    assert "--force" in refused.last_line and not (place / "registry" / "2").exists()
    told = json.loads(run("vocabulary", "apply", "cut.jsonl", "--json", "--force").out)
    assert told["num_retired"] == len(lines) - len(lines) // 2


@pytest.mark.usefixtures("editions")
def test_changes_are_measured_on_the_test_split_of_a_corpus_without_dev(run, place):
    (place / "data" / "dev.jsonl").unlink()
    words = ("vocabulary", "apply", "next.jsonl", "--force", "--data", "data")
    refused = run(*words)
    assert refused.status == 1 and "--split test" in refused.last_line
    done = run(*words, "--split", "test")
    assert done.status == 0 and "P@1" in done.err
