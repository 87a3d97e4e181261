"""An encoder without the pieces of words that its corpus does not use."""

import json
import re
from collections import Counter

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.training.pipeline import encoder_start as module
from longtail.training.pipeline.encoder_start import kept_pieces, tokenizer_of
from tests.closeness import assert_all_close

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
FOREIGN = [f"\u2581{a}{b}" for a in "αβγδεζηθ" for b in "αβγδεζηθικλμν"]
NEW = ("nebras", FOREIGN[9].strip("\u2581"), "xqz", "字")


def unigram(texts: list[str], specials: list[str] = SPECIALS) -> PreTrainedTokenizerFast:
    """A tokenizer of frequent words and parts of words, all characters, and Greek."""
    words = Counter(re.findall(r"\w+", " ".join(texts)))
    parts = [part for word, _ in words.most_common(300) for part in (word[:3], word[3:])]
    characters = sorted({*"".join(words), *"αβγδεζηθικλμν", "\u2581", "."})
    wholes = [f"\u2581{word}" for word, _ in words.most_common(150)]
    pieces = [*FOREIGN, *characters, *wholes, *parts, *(f"\u2581{part}" for part in parts)]
    vocabulary = [(each, 0.0) for each in specials]
    vocabulary += [
        (piece, -3.0 - 0.01 * (number % 97) - 4.0 * (len(piece) == 1))
        for number, piece in enumerate(dict.fromkeys(filter(None, pieces)))
    ]
    places = {each: specials.index(each) for each in SPECIALS}
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=places["<unk>"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(each, places[each]) for each in ("<s>", "</s>")]
    )
    names = ("cls_token", "pad_token", "sep_token", "unk_token", "mask_token")
    specials = dict(zip(names, [*SPECIALS, "<mask>"], strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    monkeypatch.setattr(module, "_LEAST_PIECES", 100)
    monkeypatch.setattr(module, "_MOST_KEPT", 0.95)


@pytest.fixture
def texts(tiny_texts):
    return [x["text"] for x in tiny_texts["train"]]


def test_texts_keep_their_pieces_and_others_fall_apart_into_kept_ones(texts):
    before = unigram(texts)
    kept = kept_pieces(before, texts)
    after = tokenizer_of(before, kept)
    assert len(after) == len(kept) < len(before)
    for text in texts:
        ids = before(text)["input_ids"]
        assert kept[after(text)["input_ids"]].tolist() == ids
    assert after.special_tokens_map == before.special_tokens_map
    assert before.tokenize(NEW[1]) == [f"\u2581{NEW[1]}"]
    assert after.tokenize(NEW[1]) == ["\u2581", *NEW[1]]
    unknown = [
        [x(each)["input_ids"].count(x.unk_token_id) for each in NEW] for x in (before, after)
    ]
    assert unknown[0] == unknown[1] and sum(unknown[0]) == 1


@pytest.mark.parametrize(("first", "most_kept"), [([FOREIGN[0][1:]], 0.95), ([], 0.5)])
def test_all_is_kept_where_special_tokens_would_move_or_most_is_used(
    texts, first, most_kept, monkeypatch
):
    monkeypatch.setattr(module, "_MOST_KEPT", most_kept)
    assert kept_pieces(unigram(texts, [*first, *SPECIALS]), texts) is None


def test_a_model_of_fewer_pieces_gives_the_same_scores(
    tmp_path, train_in, tiny_content, tiny_config, tiny_corpus, texts, monkeypatch
):
    encoder = tmp_path / "encoder"
    tokenizer = unigram(texts)
    tokenizer.save_pretrained(encoder)
    config = json.loads(json.dumps(tiny_content)) | {
        "encoder": str(encoder), "scorers": ["retrieval", "sparse"]
    }  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(BertConfig(
            vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=64, pad_token_id=1,
        )).save_pretrained(encoder)  # fmt: skip
    found = []
    for name, least in (("pruned", 100), ("whole", 10**6)):
        monkeypatch.setattr(module, "_LEAST_PIECES", least)
        done = train_in(tmp_path / name, type(tiny_config).model_validate(config), tiny_corpus)
        found.append(read_parts(done.bundle))
    pruned, whole = found
    assert len(pruned.dense.tokenizer) < len(whole.dense.tokenizer) == len(tokenizer)
    assert pruned.dense.encoder.num_token_ids == len(pruned.dense.tokenizer)
    answers = []
    for predictor in map(Predictor, found):
        batch = predictor.read(texts[:20])
        answers.append(predictor.rank(batch, RankingOptions(k=5, scorer="retrieval")))
    assert_all_close(answers[0].scores, answers[1].scores, rtol=1e-4)
