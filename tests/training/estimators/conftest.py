"""Documents of the demo in memory, and estimators that were fitted on them once."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.preprocessing import MultiLabelBinarizer

from longtail.training.estimators.classifier import LongtailClassifier
from tests.conftest import read_lines

NUM_TRAINING = 220
NUM_TEST = 40
NUM_CHARACTERS = 300
SPARSE = {"scorers": ["sparse"]}


@dataclass(frozen=True)
class InMemory:
    """Texts, with their labels as lists and as a matrix over the classes."""

    texts: list[str]
    labels: list[list[str]]
    matrix: csr_array
    classes: np.ndarray


@pytest.fixture(scope="session")
def demo():
    """Training and test documents, over the classes of both."""
    names = [label["title"] for label in read_lines("lbl.json.gz")]
    found = read_lines("trn.json.gz")[: NUM_TRAINING + NUM_TEST]
    texts = [f"{x['title']}\n{x['content']}"[:NUM_CHARACTERS] for x in found]
    labels = [sorted(names[index] for index in document["target_ind"]) for document in found]
    binarizer = MultiLabelBinarizer(sparse_output=True)
    matrix, classes = csr_array(binarizer.fit_transform(labels)), binarizer.classes_
    parts = (slice(NUM_TRAINING), slice(NUM_TRAINING, None))
    training, test = (InMemory(texts[x], labels[x], matrix[x], classes) for x in parts)
    return training, test


@pytest.fixture(scope="session")
def training(demo):
    return demo[0]


@pytest.fixture(scope="session")
def test(demo):
    return demo[1]


@pytest.fixture(scope="session")
def fitted(training):
    """All that needs no encoder, which no test may change."""
    return LongtailClassifier(classes=training.classes).fit(training.texts, training.matrix)


@pytest.fixture(scope="session")
def fitted_sparse(training):
    """The sparse model alone, which no test may change."""
    estimator = LongtailClassifier(classes=training.classes, config=SPARSE)
    return estimator.fit(training.texts, training.matrix)
