"""Encoders of many families are trained and served, or refused before a run starts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import AutoModel, AutoTokenizer, PretrainedConfig, TokenizersBackend

from longtail.models.encoders.dual_encoder import DualEncoder, encode_all
from longtail.models.encoders.families import VectorHead, num_positions
from longtail.models.encoders.pretrained import load_tokenizer, load_transformer
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.errors import ConfigError
from longtail.models.kinds.storage import read_parts
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.predict.predictor import Predictor
from longtail.training.configuration.run import TrainingConfig

pytestmark = pytest.mark.slow

WORDS = ("river", "fish", "law", "trade", "steel", "milk", "tax", "court", "port", "grain", "sea",
         "ship", "coal", "wine", "road", "rail")  # fmt: skip
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
VOCABULARY = [*SPECIAL.values(), *WORDS]
NUM_POSITIONS = 40
SIZES = {"vocab_size": len(VOCABULARY), "hidden_size": 16, "num_hidden_layers": 2,
         "num_attention_heads": 2, "intermediate_size": 32, "pad_token_id": 0}  # fmt: skip
BERT = SIZES | {"max_position_embeddings": NUM_POSITIONS}
HALF = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2,
        "vocab_size": len(VOCABULARY)}  # fmt: skip
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
FEW_HEADS = {"num_key_value_heads": 2, "head_dim": 8}
ENDS = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}

WORKING: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", BERT),
    "roberta": ("RobertaConfig", BERT),
    "distilbert": ("DistilBertConfig", {"vocab_size": len(VOCABULARY), "dim": 16, "n_layers": 2,
                   "hidden_dim": 32, "n_heads": 2, "max_position_embeddings": NUM_POSITIONS}),
    "mpnet": ("MPNetConfig", BERT),
    "modernbert": ("ModernBertConfig", BERT | ENDS),
    "deberta": ("DebertaConfig", BERT | RELATIVE),
    "nomic_bert": ("NomicBertConfig", BERT),
    "longformer": ("LongformerConfig", BERT | {"attention_window": 8}),
    "xlnet": ("XLNetConfig", {"vocab_size": len(VOCABULARY), "d_model": 16, "n_layer": 2,
              "n_head": 2, "d_inner": 32, "pad_token_id": 0}),
    "t5": ("T5Config", HALF),
    "gpt2": ("GPT2Config", {"vocab_size": len(VOCABULARY), "n_embd": 16, "n_layer": 2, "n_head": 2,
             "n_positions": NUM_POSITIONS}),
    "qwen2": ("Qwen2Config", BERT | {"vocab_size": 400, "num_key_value_heads": 2}),
    "qwen3": ("Qwen3Config", BERT | FEW_HEADS),
    "embedding-gemma": ("Gemma3TextConfig",
                        BERT | FEW_HEADS | {"use_bidirectional_attention": True}),
}  # fmt: skip
DECODERS = {"gpt2", "qwen2", "qwen3"}
WITHOUT_BFLOAT16 = "deberta"
DECODER = "'cls', and in this model the first token sees no other .*take 'last', or use"
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "bart": (
        "BartConfig",
        {"vocab_size": len(VOCABULARY), "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
         "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16,
         "decoder_ffn_dim": 16, "max_position_embeddings": NUM_POSITIONS},
        "'bart' is an encoder-decoder, whose encoder half can't be loaded alone; use an encoder",
    ),
    "vit": ("ViTConfig", {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 16, "image_size": 8, "patch_size": 4},
            r"can't be loaded \(\w+: .*\); expected a text encoder"),
    "fnet": ("FNetConfig", {name: BERT[name] for name in BERT if name != "num_attention_heads"},
             "FNet reads padding as text"),
}  # fmt: skip
MOST_MOVED = {"float32": 1e-4, "bfloat16": 0.05}
"""Most that serving may move a vector, as a share of its length."""
LENGTHS = [" ".join(WORDS[:n]) for n in (1, 14, 3, 9)]
"""Texts of unlike lengths, which are padded beside each other."""
FROM_PADDING = ("roberta", "mpnet", "longformer")


def config_of(name: str, **changes: Any) -> PretrainedConfig:
    class_name, settings, *_ = WORKING.get(name) or REFUSED[name]
    made: PretrainedConfig = getattr(transformers, class_name)(**settings | changes)
    return made


def write_encoder(folder: Path, config: PretrainedConfig, tokenizer: Any = None) -> Path:
    """Write a model of random weights, and a tokenizer if there is one."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


def tokenizer_of(vocabulary: list[str], template: str = "[CLS] $A [SEP]") -> TokenizersBackend:
    """Return a tokenizer that knows whole words."""
    numbers = {token: number for number, token in enumerate(vocabulary)}
    backend = Tokenizer(WordLevel(numbers, unk_token=SPECIAL["unk"]))
    backend.pre_tokenizer = Whitespace()
    ends = [(token, numbers[token]) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = TemplateProcessing(single=template, special_tokens=ends)
    names = {f"{name}_token": token for name, token in SPECIAL.items()}
    return TokenizersBackend(tokenizer_object=backend, **names)


def byte_pairs() -> TokenizersBackend:
    """Return a tokenizer of the form that Qwen's embedders have: an end token behind each text."""
    end = "<|endoftext|>"
    backend = Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(vocab_size=400, special_tokens=[end], show_progress=False,
                         initial_alphabet=ByteLevel.alphabet())  # fmt: skip
    backend.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    backend.post_processor = TemplateProcessing(single=f"$A {end}", special_tokens=[(end, 0)])
    return TokenizersBackend(tokenizer_object=backend, pad_token=end, eos_token=end)


@pytest.fixture(scope="module")
def encoder_of(tmp_path_factory):
    made: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp("encoder") / name
            tokenizer = byte_pairs() if name == "qwen2" else tokenizer_of(VOCABULARY)
            made[name] = write_encoder(folder, config_of(name), tokenizer)
        return made[name]

    return find


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Twelve documents of four words each, labelled by the first of them."""
    folder = tmp_path_factory.mktemp("words")
    lines = [
        {"text": " ".join(WORDS[(i + j * j) % 16] for j in range(4)), "labels": [WORDS[i % 6]]}
        for i in range(12)
    ]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def settings_for(encoder: Path, **changes: Any) -> TrainingConfig:
    stage = {"epochs": 1, "batch_size": 6}
    content = {
        "encoder": str(encoder), "scorers": ["retrieval", "classifier", "sparse"],
        "document_max_tokens": 16, "precision": "float32",
        "descriptions": {"num_keywords": 2, "max_tokens": 8}, "classifier": stage,
        "retrieval": stage | {"label_subset_size": 5, "hard_negatives": 1},
    }  # fmt: skip
    return TrainingConfig.model_validate(content | changes)


def num_answers(predictor: Predictor) -> int:
    """Return how many different answers the training documents' first halves get."""
    texts = [" ".join(WORDS[i : i + 3]) for i in range(8)]
    found = predictor.predict(texts, k=3, scorer="retrieval")
    return len({tuple((each.id, each.score) for each in one.labels) for one in found})


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest distance of two vectors of a text, relative to the longest vector."""
    lengths = np.linalg.norm(expected, axis=1)
    return float((np.linalg.norm(found - expected, axis=1) / lengths.max()).max())


@pytest.mark.parametrize(
    ("name", "precision"),
    [(name, precision) for name in WORKING for precision in ("float32", "bfloat16")
     if (name, precision) != (WITHOUT_BFLOAT16, "bfloat16")],
)  # fmt: skip
def test_an_encoder_is_trained_and_tells_texts_apart(
    encoder_of, train_in, corpus, tmp_path, name, precision
):
    config = settings_for(encoder_of(name), precision=precision)
    trained = train_in(tmp_path, config, corpus)
    predictor = Predictor.of_bundle(trained.bundle, precision=precision, device="cpu")
    assert num_answers(predictor) == 8
    dense = read_parts(trained.bundle).dense
    assert dense.encoder.head.document_pooling == ("last" if name in DECODERS else "cls")
    most = MOST_MOVED[precision]
    assert distance(predictor.read(LENGTHS).vectors, alone(dense, LENGTHS)) < most
    # What training made of the labels' texts, with what the bundle has of the encoder.
    labels = [label.pseudo_description for label in trained.bundle.catalogue]
    tokens = tokenize_texts(dense.tokenizer, labels, config.descriptions.max_tokens)
    assert (
        distance(encode_all(dense.encoder, tokens, "label", pad_id=0), dense.label_vectors)
        < (MOST_MOVED["float32"])
    )


def alone(dense: DenseParts, texts: list[str]) -> np.ndarray:
    """The oracle: each document by itself, with nothing beside it, in float32."""
    tokens = tokenize_texts(dense.tokenizer, texts, dense.max_tokens)
    rows = (tokens.take([row]) for row in range(len(texts)))
    return np.concatenate([encode_all(dense.encoder, row, "document", pad_id=0) for row in rows])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_is_no_encoder_is_refused_before_anything_is_trained(
    encoder_of, train_in, corpus, tmp_path, name, precision
):
    with pytest.raises(ConfigError, match=REFUSED[name][-1]) as caught:
        train_in(tmp_path, settings_for(encoder_of(name), precision=precision), corpus)
    assert str(encoder_of(name)) in str(caught.value)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"document_pooling": "cls"}, "document_pooling"),
     ({"retrieval": {"label_pooling": "cls", "epochs": 1}}, r"retrieval\.label_pooling")],
)  # fmt: skip
def test_the_first_token_of_a_decoder_is_not_taken_for_a_text(
    encoder_of, train_in, corpus, tmp_path, changes, told
):
    config = settings_for(encoder_of("gpt2"), **changes)
    with pytest.raises(ConfigError, match=f"{told} is {DECODER}"):
        train_in(tmp_path, config, corpus)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_a_text_without_tokens_has_a_vector(encoder_of, name):
    """A decoder's tokenizer may put no special token beside a text."""
    tokenizer, encoder = tokenizer_of(VOCABULARY, "$A"), load_transformer(encoder_of(name))
    model = DualEncoder(encoder, VectorHead("last", "last")).eval()
    tokens = tokenize_texts(tokenizer, ["", WORDS[0], ""], 8)
    found = encode_all(model, tokens, "document", pad_id=0)
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(found[2], abs=1e-6)
    assert found[0] != pytest.approx(found[1], abs=1e-3)
    assert encoder.config.use_cache is False


def test_documents_are_the_mean_where_no_special_token_stands_before_a_text(
    train_in, corpus, tmp_path
):
    ending = tokenizer_of(VOCABULARY, "$A [SEP]")
    folder = write_encoder(tmp_path / "t5", config_of("t5"), ending)
    dense = read_parts(train_in(tmp_path, settings_for(folder), corpus).bundle).dense
    assert dense.encoder.head == VectorHead("mean", "mean")


def test_a_model_with_code_of_its_own_is_refused_and_its_code_not_run(train_in, corpus, tmp_path):
    folder = write_encoder(tmp_path / "mine", config_of("bert"), tokenizer_of(VOCABULARY))
    said = json.loads((folder / "config.json").read_text())
    said |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModel": "mine.M"}}
    (folder / "config.json").write_text(json.dumps(said))
    (folder / "mine.py").write_text("raise SystemExit('the code was run')")
    with pytest.raises(
        ConfigError,
        match=r"encoder 'mine': its files in '.*' can't be loaded \(ValueError: .*\); expected a "
        r"text encoder that Transformers knows",
    ):
        train_in(tmp_path, settings_for(folder), corpus)


@pytest.mark.parametrize("name", sorted(set(WORKING) - {"t5", "xlnet"}))
@pytest.mark.parametrize("padding_id", [0, 1])
def test_an_encoder_reads_as_many_tokens_as_it_says_and_no_more(encoder_of, name, padding_id):
    transformer = AutoModel.from_config(config_of(name, pad_token_id=padding_id)).eval()
    most_tokens = num_positions(transformer)
    offset = padding_id + 1 if name in FROM_PADDING else 0
    if name == "mpnet":  # whatever its configuration says
        offset = 2
    assert most_tokens == NUM_POSITIONS - offset
    ids = torch.full((1, most_tokens), 7)
    assert (
        transformer(input_ids=ids, attention_mask=ids.clip(max=1))
        .last_hidden_state.isfinite()
        .all()
    )


def test_a_folder_without_a_tokenizer_is_refused_before_anything_is_trained(
    train_in, corpus, tmp_path
):
    folder = write_encoder(tmp_path / "bare", config_of("bert"))
    with pytest.raises(
        ConfigError,
        match=r"the folder has no tokenizer; expected tokenizer\.json .*"
        r"tokenizer\.save_pretrained\(folder\)",
    ):
        train_in(tmp_path, settings_for(folder), corpus)
    assert not (tmp_path / "work").exists()


def test_the_tokenizer_that_transformers_makes_up_is_refused(tmp_path):
    folder = write_encoder(tmp_path / "bare", config_of("bert"))
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    with pytest.raises(ConfigError, match=r"its tokenizer has 5 tokens, all of them special"):
        load_tokenizer(folder)


def corpus_of(folder: Path, words: list[str]) -> Path:
    folder.mkdir()
    lines = [{"text": f"{a} {b} {a}", "labels": [a]} for a in words for b in words if a != b]
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


def test_a_tokenizer_that_knows_no_word_of_the_corpus_is_refused(encoder_of, train_in, tmp_path):
    corpus = corpus_of(tmp_path / "corpus", ["elokuva", "kirjasto", "musiikki"])
    with pytest.raises(
        ConfigError,
        match=r"100% of the tokens of 6 training texts are unknown to its tokenizer \('\[UNK\]'\), "
        r"expected less than 95%; use an encoder for the language of the texts",
    ):
        train_in(tmp_path, settings_for(encoder_of("bert")), corpus)
    assert not (tmp_path / "work").exists()
