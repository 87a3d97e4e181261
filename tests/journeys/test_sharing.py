"""A person sends a model to a colleague, who serves it."""

import json

import pytest

from longtail.models.bundle.registry import Registry
from tests.journeys.conftest import Outcome


def test_a_model_goes_by_zip_file_from_one_registry_to_another(place, run):
    sent = run("push", "model.zip", "--name", "Fish", "--license", "cc0-1.0", "--json")
    assert sent.status == 0 and json.loads(sent.out)["sent"]
    again = run("push", "model.zip")
    assert "holds this model already" in again.out
    came = run("pull", "model.zip", "--registry", "colleague")
    assert came.status == 0 and "Current is version 1" in came.out
    digest = Registry("registry").open().manifest.digest
    assert Registry("colleague").open().manifest.digest == digest
    for registry in ("registry", "colleague"):
        asked = ("--registry", registry, "--input", "docs.jsonl", "--output", f"{registry}.jsonl")
        assert run("predict", *asked).status == 0
    assert (place / "colleague.jsonl").read_text() == (place / "registry.jsonl").read_text()


SUBJECTS = {"cats": "Katzen", "dogs": "Hunde", "birds": "Vögel"}
TEXTS = ["cats purr and sleep", "dogs bark at night", "birds sing in trees"]
AFTER = [
    ("evaluate", "data", "--split", "dev", "--no-baselines"),
    ("threshold", "data", "--precision", "0.5"),
    ("promote", "--candidate", "1", "--data", "data", "--split", "dev"),
    ("learn", "data", "--feedback", "said.jsonl"),
]
CASES = {
    "--language": (["--language", "de"], {}),
    "--text-columns": (["--text-columns", "body"], {"text": "body"}),
    "--label-column": (["--label-column", "topic"], {"labels": "topic"}),
    "--label-delimiter": (["--label-delimiter", "/"], {}),
    "--id-column": (["--id-column", "key"], {"id": "key"}),
    "--one-row-per-label": (["--one-row-per-label"], {}),
}


def write_corpus(folder, names):
    folder.mkdir()
    head = [names.get(name, name) for name in ("id", "text", "labels")]
    for split, number in (("train", 90), ("dev", 30)):
        rows = [",".join(head)]
        for i in range(number):
            subject = [*SUBJECTS][i % 3]
            rows += [f"{split}{i},{TEXTS[i % 3]} {split} {i},http://x/{subject}"]
        (folder / f"{split}.csv").write_text("\n".join(rows) + "\n", "utf-8")
    lines = ["@prefix s: <http://www.w3.org/2004/02/skos/core#> ."]
    lines += [
        f'<http://x/{each}> a s:Concept ; s:prefLabel "{each}"@en, "{name}"@de .'
        for each, name in SUBJECTS.items()
    ]
    (folder / "vocabulary.ttl").write_text("\n".join(lines), "utf-8")


@pytest.mark.parametrize("option", CASES)
def test_later_commands_read_the_corpus_as_the_training_did(option, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, names = CASES[option]
    write_corpus(tmp_path / "data", names)
    trained: Outcome = run("train", "data", "--without-encoder", *words)
    assert trained.status == 0, trained.err
    entry = {"id": "1", "text": "cats and dogs", "accepted": ["http://x/dogs"], "version": 1}
    (tmp_path / "said.jsonl").write_text(json.dumps(entry) + "\n", "utf-8")
    for after in AFTER:
        done: Outcome = run(*after)
        said = done.out + done.err
        assert "fingerprint" not in said and "no column" not in said, (after, said)
        assert done.status == 0 or after[0] in ("threshold", "promote"), (after, said)
