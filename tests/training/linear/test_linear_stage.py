"""The linear stage of a run: standardised vectors, and what is done only once."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.kinds.storage import read_parts
from longtail.models.scorers.linear import LinearModel
from longtail.training.configuration.sections import LinearConfig
from longtail.training.linear.stage import standardise, train_linear_scorer, unstandardised
from longtail.training.neural import document_vectors
from longtail.training.neural.document_vectors import encode_documents
from research.experiments.adversarial.corrections import TreeCorrection, corrected_scores
from tests.closeness import assert_all_close

DIM, NUM_LABELS = 6, 5


def made_up() -> tuple[np.ndarray, csr_array]:
    """Documents near the centre of their label, far from the origin; label 3 has none."""
    rng = np.random.default_rng(0)
    labels = rng.choice([0, 1, 2, 4], 300)
    centres = 3 * rng.standard_normal((NUM_LABELS, DIM))
    vectors = 20 + 5 * (centres[labels] + rng.standard_normal((300, DIM)))
    truth = csr_array((np.ones(300, np.float32), labels, np.arange(301)), shape=(300, NUM_LABELS))
    return vectors.astype(np.float32), truth


def config(**changes: object) -> LinearConfig:
    tree = {"kind": "tree", "regulariser": 1.0}
    negatives = {
        "distribution": tree, "weighting": "constant", "num_negatives": 4, "exclude": "none"
    }  # fmt: skip
    loss = {"kind": "decoupled"}
    content = {"negatives": negatives, "loss": loss, "epochs": 3, "batch_size": 20}
    return LinearConfig.model_validate(content | changes)


def test_standardised_vectors_are_centred_with_a_mean_square_length_of_one():
    vectors, _ = made_up()
    before = vectors.copy()
    mean, scale = standardise(vectors)
    np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=1e-5)
    assert (vectors**2).sum(axis=1).mean() == pytest.approx(1, rel=1e-5)
    assert_all_close(mean + scale * vectors, before, rtol=1e-4)


def test_a_model_of_standardised_vectors_is_turned_into_one_of_vectors_as_they_are():
    vectors, _ = made_up()
    before = vectors.copy()
    mean, scale = standardise(vectors)
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((NUM_LABELS, DIM)).astype(np.float32)
    model = LinearModel(weight, weight[:, 0].copy(), np.arange(NUM_LABELS))
    turned = unstandardised(model, mean, scale)
    wanted = vectors @ model.weight.T + model.bias
    np.testing.assert_allclose(before @ turned.weight.T + turned.bias, wanted, atol=1e-4)


def test_corrected_scores_find_the_labels_of_made_up_documents(tmp_path):
    vectors, truth = made_up()
    before = torch.from_numpy(vectors.copy())
    scorer = train_linear_scorer(vectors, truth, config(), seed=0, device="cpu", folder=tmp_path)
    assert (scorer.correction, scorer.model.labels.tolist()) == ("tree", [0, 1, 2, 4])
    assert scorer.tree is not None and scorer.tree.num_labels == NUM_LABELS
    scores = corrected_scores(scorer.model, before, TreeCorrection(scorer.tree)).numpy()
    is_right = scorer.model.labels[scores.argmax(axis=1)] == truth.indices
    assert is_right.mean() > 0.95


def test_documents_are_encoded_part_by_part_and_once(trained, tiny_corpus, tmp_path, monkeypatch):
    from longtail.models.encoders.tokens import tokenize_texts
    from longtail.training.data.dataset import open_dataset

    dense = read_parts(trained.bundle).dense
    texts = list(open_dataset(tiny_corpus).split("dev").texts())
    tokens = tokenize_texts(dense.tokenizer, texts, dense.max_tokens)
    options = {"pad_id": 0, "device": "cpu", "folder": tmp_path / "vectors"}
    monkeypatch.setattr(document_vectors, "_PART_SIZE", 7)
    found = encode_documents(dense.encoder, tokens, **options)
    np.testing.assert_allclose(
        found, encode_all(dense.encoder, tokens, "document", pad_id=0), rtol=1e-3, atol=1e-5
    )
    names = sorted(path.name for path in (tmp_path / "vectors").iterdir())
    assert names == [f"documents-{start:08d}.safetensors" for start in (0, 7, 14)]
    (tmp_path / "vectors" / names[1]).unlink()
    calls: list[int] = []

    def counted(encoder: object, part: object, *args: object, **kwargs: object) -> np.ndarray:
        calls.append(len(part))
        return encode_all(encoder, part, *args, **kwargs)

    monkeypatch.setattr(document_vectors, "encode_all", counted)
    np.testing.assert_array_equal(encode_documents(dense.encoder, tokens, **options), found)
    assert calls == [7]
