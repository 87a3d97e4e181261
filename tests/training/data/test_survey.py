"""One pass over the training texts: the sample, the warm-up texts, the scripts."""

from longtail.models.bundle.warmup_texts import read_probes


def test_a_run_publishes_training_texts(trained, tiny_texts):
    texts = [document["text"] for document in tiny_texts["train"]]
    found = read_probes(trained.bundle)
    assert len(set(found)) == 16
    assert set(found) <= {text.strip() for text in texts}
