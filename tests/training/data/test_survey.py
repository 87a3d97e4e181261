"""One pass over the training texts: the sample, the warm-up texts, the scripts."""

import numpy as np

from longtail.models.bundle.warmup_texts import read_probes
from longtail.training.data.survey import rows_by_length


def test_warm_up_texts_are_the_middle_ones_of_equal_parts_by_length():
    assert rows_by_length(np.array([9, 1, 5, 3, 8, 2]), 3) == [5, 2, 0]


def test_a_run_publishes_training_texts(trained, tiny_texts):
    texts = [document["text"] for document in tiny_texts["train"]]
    found = read_probes(trained.bundle)
    assert len(set(found)) == 16
    assert set(found) <= {text.strip() for text in texts}
