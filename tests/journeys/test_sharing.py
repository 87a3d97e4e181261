"""A person sends a model to a colleague, who serves it."""

import json

from longtail.models.bundle.registry import Registry


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
