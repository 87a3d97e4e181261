"""Which words stand in the files of a bundle."""

import json
from dataclasses import replace

import numpy as np

from longtail.models.bundle.bundle import open_bundle, write_bundle
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.parts.audit import audit_bundle, words_of_list


def test_every_kind_of_file_is_searched(tmp_path, manifest):
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "tokenizer.json").write_text(json.dumps({"vocab": {"\u0120gr\u00fcn": 7}}))
    (encoder / "vocab.txt").write_text("rot\nblau\n")
    write_bundle(
        tmp_path / "1",
        manifest=replace(manifest, label_count=1),
        catalogue=LabelCatalogue([Label("L1", "Name", description="of Rosé, here")]),
        tensors={"a.safetensors": {"text": np.frombuffer(b"said weiss", dtype=np.uint8)}},
        texts={"n.json": json.dumps(["gelbes", "x_gelb_y", "\u7d05\u8272\u7684"])},
        encoder_folder=encoder,
    )
    words = words_of_list("Gr\u00dcN\nrose\nweiss gelb blau \u7d05\u8272 schwarz")
    found = {(x.word, x.file): x for x in audit_bundle(open_bundle(tmp_path / "1"), words)}
    assert set(found) == {
        ("grun", "encoder/tokenizer.json"), ("blau", "encoder/vocab.txt"), ("gelb", "n.json"),
        ("rose", "labels.jsonl"), ("weiss", "a.safetensors"), ("\u7d05\u8272", "n.json"),
    }  # fmt: skip
    assert found["rose", "labels.jsonl"].labels == ("L1",)
    assert found["gelb", "n.json"].places == ("1",)  # not in "gelbes"


def test_a_word_of_the_vocabulary_names_the_labels_that_it_speaks_for(bundle):
    (column, word) = next(
        (column, token)
        for column, token in enumerate(json.loads(bundle.text("sparse.json"))["tokens"])
        if token.isalpha()
    )
    sparse = bundle.tensors("sparse.safetensors")
    own = slice(*sparse["indptr"][column : column + 2])
    rows, data = sparse["indices"][own], sparse["data"][own]
    weights = dict(zip(rows[data > 0].tolist(), data[data > 0].tolist(), strict=True))
    best = sorted(weights, key=lambda row: -weights[row])
    (found,) = (x for x in audit_bundle(bundle, [word]) if x.file == "sparse.json")
    assert found.labels == tuple(bundle.catalogue[int(sparse["labels"][x])].id for x in best)
