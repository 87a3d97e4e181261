"""A tiny random encoder, a small slice of the demo corpus, and a model trained on it with both."""

import gc
import gzip
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import settings
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from longtail.models.bundle import registry
from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.registry import Registry
from longtail.models.sharing import transfer
from longtail.service.versions import loading
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.pipeline.train import Run, train

# A busy machine is no failure; and CI tries the same examples every time.
settings.register_profile(
    "longtail", deadline=None, max_examples=25, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("longtail")

DEMO_DATA = Path(__file__).parents[1] / "training" / "demo_data"
NUM_DOCUMENTS = {"train": 60, "dev": 20, "test": 20}
NUM_CHARACTERS = 300  # kept of each text
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def pytest_collection_finish() -> None:
    """Leave what was loaded to run the tests out of all searches for garbage: a second each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny matrices are slower on several threads; and their number decides the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def writable_versions():
    """Tests damage files of versions in place, which are read-only otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (registry, transfer, loading):
            patch.setattr(module, "make_read_only", lambda folder: None, raising=False)
        yield


@pytest.fixture(autouse=True)
def own_log_levels():
    """What a command sets for its log is not left to the next test."""
    yield
    logging.getLogger("longtail").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def ray_cluster():
    """Ray with four workers on this machine; tests are skipped where it is not installed."""
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",  # whatever else runs on this machine
        num_cpus=4,
        object_store_memory=2**27,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def tiny_texts():
    """The first documents of each part of the demo data, cut short."""
    files = {"train": "trn", "dev": "dev", "test": "tst"}
    return {name: read_documents(file, NUM_DOCUMENTS[name]) for name, file in files.items()}


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory, tiny_texts):
    """The slice as JSON lines, with exactly the labels that occur in it."""
    folder = tmp_path_factory.mktemp("corpus")
    names = read_lines("lbl.json.gz")
    used = {index for documents in tiny_texts.values() for x in documents for index in x["labels"]}
    write_lines(
        folder / "labels.jsonl",
        ({"id": names[i]["uid"], "name": names[i]["title"]} for i in sorted(used)),
    )
    for split, documents in tiny_texts.items():
        ids = ([names[index]["uid"] for index in document["labels"]] for document in documents)
        write_lines(
            folder / f"{split}.jsonl",
            ({"text": x["text"], "labels": y} for x, y in zip(documents, ids, strict=True)),
        )
    return folder


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory, tiny_texts):
    """A BERT of two layers and random weights that knows the commonest words of the slice."""
    folder = tmp_path_factory.mktemp("tiny-encoder")
    words = Counter(re.findall(r"\w+", " ".join(x["text"].lower() for x in tiny_texts["train"])))
    vocabulary = [*SPECIAL_TOKENS, *(word for word, _ in words.most_common(400))]
    tokenizer_of(vocabulary).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_content(tiny_encoder):
    """What stands in the configuration of a run of a second."""
    stage = {"epochs": 2, "batch_size": 8}
    return {
        "seed": 3, "encoder": str(tiny_encoder), "document_max_tokens": 24, "precision": "float32",
        "descriptions": {"num_keywords": 5, "max_tokens": 12},
        "classifier": {**stage, "encoder_learning_rate": 1e-3},
        "retrieval": {**stage, "label_subset_size": 40, "hard_negatives": 3},
        "linear": {
            "negatives": {
                "distribution": {"kind": "tree", "regulariser": 1.0}, "weighting": "constant",
                "num_negatives": 8, "exclude": "none",
            },
            "loss": {"kind": "decoupled"}, "epochs": 2, "batch_size": 50,
        },
    }  # fmt: skip


@pytest.fixture(scope="session")
def tiny_config(tiny_content):
    return TrainingConfig.model_validate(tiny_content)


@pytest.fixture(scope="session")
def tiny_config_file(tmp_path_factory, tiny_content):
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_content))
    return path


@dataclass(frozen=True)
class Trained:
    """A finished run: its registry, its work folder, and the version that it published."""

    registry: Registry
    work: Path
    version: int

    @property
    def bundle(self) -> Bundle:
        return self.registry.open(self.version)


@pytest.fixture(scope="session")
def train_in():
    """Trains on a corpus, with the registry and the work in a folder."""

    def train_one(folder: Path, config: TrainingConfig, corpus: Path, **options: Any) -> Trained:
        run = Run(config, open_dataset(corpus, **options), folder / "work")
        registry = Registry(folder / "registry")
        return Trained(registry, run.folder, train(run, registry))

    return train_one


@pytest.fixture(scope="session")
def trained(tmp_path_factory, train_in, tiny_config, tiny_corpus):
    """One run, trained without a break, that no test may change."""
    return train_in(tmp_path_factory.mktemp("trained"), tiny_config, tiny_corpus)


@pytest.fixture(scope="session")
def sparse_config(tiny_config):
    """The same run without an encoder."""
    kept = tiny_config.model_dump(include={"seed": True, "descriptions": {"num_keywords"}})
    return TrainingConfig.model_validate(kept | {"scorers": ["sparse"]})


@pytest.fixture(scope="session")
def trained_sparse(tmp_path_factory, train_in, sparse_config, tiny_corpus):
    """A run of the sparse model alone, that no test may change."""
    return train_in(tmp_path_factory.mktemp("trained-sparse"), sparse_config, tiny_corpus)


def read_lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(DEMO_DATA / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_documents(file: str, count: int) -> list[dict[str, Any]]:
    return [
        {"text": f"{x['title']}\n{x['content']}"[:NUM_CHARACTERS], "labels": x["target_ind"]}
        for x in read_lines(f"{file}.json.gz")[:count]
    ]


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def tokenizer_of(vocabulary: list[str]) -> PreTrainedTokenizerFast:
    numbers = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(token, numbers[token]) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ends)
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
