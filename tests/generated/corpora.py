"""Corpora that nobody would make by hand: drawn by hypothesis, written as people's files lie."""

import csv
import gzip
import io
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

SCRIPTS = (
    "abcdefghijklmnopqrstuvwxyz",
    "äöüßéèçñøåščřžłİı",
    "абвгдежзийклмн",
    "αβγδεζηθικλμ",
    "אבגדהוזחטיכ",
    "ابتثجحخدذرزسشصض",
    "कखगघचजटडतदनपबमयरलवसह\u093e\u093f\u0940\u0941\u0947\u094b\u094d\u0902",
    "அஆஇகசடதபமயரலவ\u0bbe\u0bbf\u0bc0\u0bc1",
    "的一是不了人我在有他这中大来上国个到说们为子和你地出",
    "あいうえおかきくけこさしすせそアイウエオカキクケコー",
    "가나다라마바사아자차카타파하한국어",
    "กขคงจฉชซญดตถทธนบปผ\u0e30\u0e32\u0e34\u0e35\u0e38\u0e48\u0e49",
    "ကခဂဃငစဆဇ\u102c\u102d\u102e\u102f",
    "កខគឃងចឆជ\u17b6\u17b7\u17b8\u17bb\u17d2",
    "ሀለሐመሠረሰሸቀበተ",
    "0123456789",
    "!?.,;:-\u2013\u2014/\\|'\"()[]{}<>@#$%^&*+=~`",
    "😀🎉🇩🇪👩\u200d👧\u200b\u200d\ufeff\u202e\u0301",
    " \t\r\n\u00a0\u2028\u3000",
    "\x00\x01\x1b\x7f\ufffe\uffff\U0010ffff\U0001d518\U0001d52b\U00020000",
)
"""Characters to write words of; the last three are hardly any script."""

LABEL_COUNTS = (1, 1, 2, 2, 3, 5, 10, 42, 42, 257, 300)
HUGE_LABEL_COUNTS = (2_000, 100_000)
FORMS = ("jsonl", "csv", "xc")
ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16")


@dataclass
class Corpus:
    """The files of a corpus, and how it is to be read and trained."""

    files: dict[str, bytes]
    skip_bad: bool
    config: dict[str, Any]
    queries: list[str]
    is_served: bool
    has_pictures: bool
    traits: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder

    def __repr__(self) -> str:  # what hypothesis prints of a failure
        files = {name: content[:300] for name, content in self.files.items()}
        return f"Corpus({self.traits}, config={self.config}, skip_bad={self.skip_bad}, {files})"


class Writer:
    """Draws the texts and labels of one corpus; quick, as it needs one draw of hypothesis."""

    def __init__(self, rng: random.Random, scripts: list[str], num_labels: int) -> None:
        self.rng = rng
        self.words = [self.word(rng.choice(scripts)) for _ in range(rng.choice((1, 5, 40, 400)))]
        self.label_names = self._names(num_labels)

    def word(self, script: str) -> str:
        return "".join(self.rng.choices(script, k=self.rng.choice((1, 1, 2, 4, 8))))

    def _names(self, count: int) -> list[str]:
        names: dict[str, None] = {}
        for number in range(count):
            words = self.rng.choices(self.words, k=self.rng.choice((1, 1, 2, 3)))
            name = self.rng.choice((" ", " ", "; ", "")).join(words).strip()
            if not name or name in names or count > 500:
                name = f"{name} {number}".strip()
            names[name] = None
        return list(names)

    def text(self) -> str:
        rng = self.rng
        kind = rng.random()
        if kind < 0.02:
            return rng.choice(("", " ", "\n", "\u3000"))
        if kind < 0.04:
            return self.word(rng.choice(SCRIPTS))
        if kind < 0.05:
            return " ".join(rng.choices(self.words, k=rng.choice((5_000, 30_000))))
        return rng.choice((" ", " ", "")).join(rng.choices(self.words, k=rng.randint(1, 30)))

    def labels(self, pool: list[int]) -> list[int]:
        if not pool:
            return []
        size = self.rng.choice((0, 1, 1, 1, 2, 3, 3, 8, len(pool)))
        return self.rng.sample(pool, min(size, len(pool), 50))


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    """Draw a corpus: few choices by hypothesis, all texts by one random generator."""
    rng = random.Random(draw(st.integers(0, 2**32), label="rng"))  # noqa: S311
    chosen = draw(st.lists(st.sampled_from(SCRIPTS), min_size=1, max_size=4, unique=True))
    is_huge = rng.random() < 0.01  # hypothesis would hardly ever draw what is rare
    count = draw(st.sampled_from(HUGE_LABEL_COUNTS if is_huge else LABEL_COUNTS))
    form = draw(st.sampled_from(FORMS))
    has_file = form == "xc" or count > 1_000 or draw(st.booleans())
    writer = Writer(rng, chosen, count)
    splits = {"train": draw(st.sampled_from((1, 1, 2, 3, 8, 20, 60)))}
    for name in ("dev", "test"):
        if draw(st.booleans()):
            splits[name] = draw(st.sampled_from((1, 1, 4, 12)))
    records = _records(draw, writer, splits, has_file)
    files = _files(draw, writer, form, has_file, records)
    config, has_encoder = _config(draw, rng)
    return Corpus(
        files=files,
        skip_bad=draw(st.booleans()),
        config=config,
        queries=["!", "x", "好", "😀", writer.text() or "a", rng.choice(writer.words) + "a"],
        is_served=draw(st.integers(0, 3)) == 3,
        has_pictures=draw(st.integers(0, 9)) == 9,
        traits=[form, f"{count} labels", str(splits), "encoder" if has_encoder else "sparse"],
    )


def _records(
    draw: st.DrawFn, writer: Writer, splits: dict[str, int], has_file: bool
) -> dict[str, list[dict[str, Any]]]:
    rng, everything = writer.rng, list(range(len(writer.label_names)))
    is_unseen = draw(st.integers(0, 5), label="unseen at 5") == 5
    trained = everything[: max(1, len(everything) // 2)] if is_unseen else everything
    pools = {"train": trained, "dev": everything, "test": everything}
    if is_unseen and draw(st.booleans()):
        pools["dev"] = pools["test"] = everything[len(trained) :]
    if draw(st.integers(0, 9), label="no labels at 9") == 9:
        pools["train"] = []
    is_same = draw(st.integers(0, 7), label="same text at 7") == 7
    same = writer.text()
    ids = draw(st.sampled_from(("none", "none", "numbers", "equal")))
    found: dict[str, list[dict[str, Any]]] = {}
    for name, size in splits.items():
        found[name] = []
        for number in range(size):
            record: dict[str, Any] = {
                "text": same if is_same else writer.text(),
                "labels": writer.labels(pools[name]),
            }
            if ids != "none":
                record["id"] = "same" if ids == "equal" else str(number)
            if not has_file and rng.random() < 0.02:
                record["labels"].append(rng.choice(everything))
            found[name].append(record)
    return found


def _files(
    draw: st.DrawFn,
    writer: Writer,
    form: str,
    has_file: bool,
    records: dict[str, list[dict[str, Any]]],
) -> dict[str, bytes]:
    encoding = draw(st.sampled_from(ENCODINGS))
    is_zipped = draw(st.integers(0, 5)) == 5
    lacks = has_file and form != "xc" and draw(st.integers(0, 7), label="lacks at 7") == 7
    names = writer.label_names
    texts: dict[str, str] = {}
    if form == "xc":
        short = {"train": "trn", "dev": "dev", "test": "tst"}
        for name, found in records.items():
            rows = [
                {"title": x["text"], "content": "", "target_ind": sorted(set(x["labels"]))}
                | ({"uid": x["id"]} if "id" in x else {})
                for x in found
            ]
            texts[f"{short[name]}.json"] = _json_lines(rows)
        texts["lbl.json"] = _json_lines(
            [{"uid": f"i{number}", "title": name} for number, name in enumerate(names)]
        )
    else:
        named = {
            name: [x | {"labels": [names[label] for label in x["labels"]]} for x in found]
            for name, found in records.items()
        }
        delimiter = draw(st.sampled_from(",,;\t"))
        for name, found in named.items():
            texts[f"{name}.{form}"] = (
                _json_lines(found) if form == "jsonl" else _csv(writer.rng, found, delimiter)
            )
        if has_file:
            listed = names[: max(1, len(names) - 1)] if lacks else names
            texts["labels.jsonl"] = _json_lines(
                [{"id": f"i{number}", "name": name} for number, name in enumerate(listed)]
            )
    if draw(st.integers(0, 7), label="broken line at 7") == 7:
        texts = {name: text + _broken(name) for name, text in texts.items()}
    return {
        f"{name}.gz" if is_zipped else name: _encoded(text, encoding, is_zipped)
        for name, text in texts.items()
    }


def _broken(name: str) -> str:
    if name.startswith(("lbl", "labels")):
        return ""
    return '"open\n' if name.endswith(".csv") else '{"text": "half\n'


def _encoded(text: str, encoding: str, is_zipped: bool) -> bytes:
    content = text.encode(encoding)
    return gzip.compress(content, 1) if is_zipped else content


def _json_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _csv(rng: random.Random, rows: list[dict[str, Any]], delimiter: str) -> str:
    file = io.StringIO()
    columns = [name for name in ("id", "text", "labels") if name in rows[0]]
    writer = csv.DictWriter(file, columns, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writeheader()
    for row in rows:
        labels = row["labels"]
        is_plain = rng.random() < 0.8 and not any(name.startswith("[") for name in labels)
        cell = ";".join(labels) if is_plain else json.dumps(labels)
        writer.writerow(row | {"labels": cell})
    return file.getvalue()


def _config(draw: st.DrawFn, rng: random.Random) -> tuple[dict[str, Any], bool]:
    sparse: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 3:
        sparse["analyzer"] = draw(st.sampled_from(("word", "char")))
    if draw(st.integers(0, 3)) == 3 and sparse.get("analyzer") != "char":
        sparse["max_ngram"] = 2
    if draw(st.integers(0, 3)) == 3:
        sparse |= {"exact_documents": 0, "sampled_negatives": 3, "hard_negatives": 2}
    config: dict[str, Any] = {"sparse": sparse, "warmup_texts": draw(st.sampled_from((0, 16)))}
    has_encoder = rng.random() < 0.04
    if not has_encoder:
        config["scorers"] = ["sparse"]
    return config, has_encoder
