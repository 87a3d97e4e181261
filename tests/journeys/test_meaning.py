"""Figures keep their meaning however documents and versions are mixed up.

The label of half of the documents is a word of the text; that of the others follows from nothing,
so a model knows it only if it was trained on the document. P@1 of new documents is a half, that of
training documents is near one. Whatever is measured, the figure is a half, or is refused.
"""

import csv
import json
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import longtail
from longtail import CorpusOptions
from longtail.models.bundle.registry import Registry
from longtail.models.bundle.trained_on import DIGESTS_NAME, RECORD_NAME, digest_of, read_trained_on
from longtail.models.errors import LongtailError
from longtail.models.kinds.storage import read_parts, write_parts

NUM_DOCUMENTS, NUM_LABELS = 1_500, 25
TRUE = (0.4, 0.62)
"""P@1 of documents that are new; the standard error is 0.04."""
TRAINED_ON = 0.9
COLUMNS = ("Titel", "Text", "Art")
OPTIONS = CorpusOptions(COLUMNS, "Tags", ",")
WORDS = (
    "--read", f"text-columns={','.join(COLUMNS)}", "--read", "label-column=Tags",
    "--read", "label-delimiter=,",
)  # fmt: skip
SCORER = "neighbours"


@dataclass(frozen=True)
class Row:
    """A document of the corpus, in columns."""

    id: str
    Titel: str
    Text: str
    Art: str
    Tags: str


def rows_of(seed: int, count: int = NUM_DOCUMENTS) -> list[Row]:
    """Half of them are recognised by their texts; another seed makes other documents."""
    rng = random.Random(seed)  # noqa: S311
    found = []
    for number in range(count):
        label = f"topic{rng.randrange(NUM_LABELS)}"
        words = [f"w{rng.randrange(3000)}" for _ in range(14)]
        title = f"{label} {label} {label}" if number % 2 else words.pop()
        kind = f"kind{rng.randrange(4)}"
        found.append(Row(f"s{seed}-{number}", title, " ".join(words), kind, label))
    return found


def write(path: Path, rows: Iterable[Row], names: Sequence[str] = (*COLUMNS, "Tags")) -> Path:
    """Write columns of the rows as a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([getattr(row, name) for name in names] for row in rows)
    return path


def edited(rows: Sequence[Row]) -> list[Row]:
    """Correct a word of each row."""
    return [replace(row, Text=f"{row.Text}s") for row in rows]


def frame_of(rows: Iterable[Row]) -> pd.DataFrame:
    texts = [(f"{x.Titel}\n{x.Text}\n{x.Art}", [x.Tags]) for x in rows]
    return pd.DataFrame(texts, columns=["text", "labels"])


@dataclass(frozen=True)
class World:
    """Files, and a registry whose versions were trained on them.

    Version 1 was trained on the first half of the rows, version 2, the current one, on all of them,
    version 3 on all of them with ids, and version 4 is version 2 without a record.
    """

    folder: Path
    rows: list[Row]

    @property
    def registry(self) -> Path:
        return self.folder / "registry"

    @property
    def file(self) -> Path:
        return self.folder / "rows.csv"

    @property
    def with_ids(self) -> Path:
        return self.folder / "ids.csv"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"), rows_of(0))
    half = write(made.folder / "half.csv", made.rows[: NUM_DOCUMENTS // 2])
    write(made.file, made.rows)
    write(made.with_ids, made.rows, ("id", *COLUMNS, "Tags"))
    for number, path in enumerate((half, made.file, made.with_ids)):
        longtail.train(
            path, corpus=OPTIONS, registry=made.registry, work=made.folder / f"run{number}",
            scorers=["sparse", "neighbours"], warmup_texts=0,
        )  # fmt: skip
    registry = Registry(made.registry)
    bundle = registry.open(2)
    parts = read_parts(bundle)
    registry.publish(
        lambda folder: write_parts(folder, parts, bundle.manifest, made.folder / "scratch")
    )
    registry.activate(2)
    return made


def measured(world: World, data: Any, **options: Any) -> float:
    """Return P@1, by `longtail.evaluate`."""
    found = longtail.evaluate(data, registry=world.registry, **{"corpus": OPTIONS, **options})
    return found.metrics[SCORER]["P@1"]


def right(value: float) -> bool:
    return TRUE[0] <= value <= TRUE[1]


def test_the_corpus_shows_what_is_known_by_heart(world):
    parts = longtail.load(world.registry)
    found = parts.predict(
        [frame_of([row])["text"][0] for row in world.rows[:200]], k=1, scorer=SCORER
    )
    hits = [x.labels[0].id == row.Tags for x, row in zip(found, world.rows[:200], strict=True)]
    assert sum(hits) / len(hits) > TRAINED_ON - 0.1  # a fifth of them are dev and test


Data = Callable[[World, Path], Any]
"""Makes what is measured on."""


def csv_of(rows: Callable[[World], list[Row]], names: Sequence[str] = (*COLUMNS, "Tags")) -> Data:
    return lambda world, folder: write(folder / "rows.csv", rows(world), names)


def split_of(rows: Callable[[World], list[Row]]) -> Data:
    """Make a folder whose rows are all to be measured on."""
    return lambda world, folder: write(folder / "sub" / "test.csv", rows(world)).parent


def renamed(world: World, folder: Path) -> Path:
    path = write(folder / "renamed.csv", world.rows)
    path.write_text(path.read_text().replace("Titel,Text,Art", "a,b,c", 1))
    return path


def shuffled(world: World) -> list[Row]:
    return random.Random(1).sample(world.rows, NUM_DOCUMENTS)  # noqa: S311


def columns_of(rows: Iterable[Row]) -> pd.DataFrame:
    return pd.DataFrame([vars(row) for row in rows]).drop(columns="id")


def reading(*columns: str) -> dict[str, Any]:
    return {"corpus": replace(OPTIONS, text_columns=columns)}


def same_file(world: World, _: Path) -> Path:
    return world.file


NO_OPTIONS: dict[str, Any] = {"corpus": None}
RIGHT: dict[str, tuple[Data, dict[str, Any]]] = {
    "same file": (same_file, {}),
    "without options": (same_file, NO_OPTIONS),
    "frame instead of file": (lambda world, _: frame_of(world.rows), NO_OPTIONS),
    "frame of the columns": (lambda world, _: columns_of(world.rows), NO_OPTIONS),
    "other order": (csv_of(shuffled), {}),
    "doubled rows": (csv_of(lambda world: world.rows * 2), {}),
    "more rows": (csv_of(lambda world: [*world.rows, *rows_of(1, 400)]), {}),
    "edited rows with ids": (
        csv_of(lambda world: edited(world.rows), ("id", *COLUMNS, "Tags")), {"version": 3},
    ),
    "renamed columns": (renamed, reading("a", "b", "c")),
    "older version": (same_file, {"version": 1}),
    "new test file": (split_of(lambda _: rows_of(2, 300)), {}),
    "new frame": (lambda *_: columns_of(rows_of(3, 300)), NO_OPTIONS),
    "test split of some rows and new ones": (
        split_of(lambda world: [*world.rows[:100], *rows_of(2, 300)]), {},
    ),
    "own corpus of a version without record": (same_file, {"version": 4}),
}  # fmt: skip


@pytest.mark.parametrize(("data", "options"), RIGHT.values(), ids=RIGHT)
def test_the_figure_is_right(data, options, world, tmp_path):
    assert right(measured(world, data(world, tmp_path), **options))


REFUSED: dict[str, tuple[Data, dict[str, Any]]] = {
    "training split": (same_file, {"split": "train"}),
    "training split without record": (same_file, {"split": "train", "version": 4}),
    "test split of all rows": (split_of(lambda world: world.rows), {}),
    "ids that training had and are gone": (same_file, {"version": 3}),
    "fewer columns": (same_file, reading("Titel", "Text")),
    "other order of columns": (same_file, reading(*COLUMNS[::-1])),
    "fewer columns under other names": (renamed, reading("a", "b")),
}


@pytest.mark.parametrize(("data", "options"), REFUSED.values(), ids=REFUSED)
def test_a_figure_without_meaning_is_refused(data, options, world, tmp_path):
    with pytest.raises(LongtailError, match="trained on"):
        measured(world, data(world, tmp_path), **options)


def test_a_frame_of_trained_documents_is_refused_with_fewer_columns_too(world):
    fewer = pd.DataFrame([{"text": x.Text, "labels": [x.Tags]} for x in world.rows])
    for frame in (frame_of(world.rows), fewer):
        with pytest.raises(LongtailError, match="trained on"):
            longtail.load(world.registry).evaluate(frame)


def test_no_id_can_be_found_in_a_bundle_by_trying(world):
    for version in (2, 3):
        record = read_trained_on(Registry(world.registry).open(version))
        assert len(record.digests["train_texts"]) > 100
        stored = {int(x) for found in record.digests.values() for x in found}
        assert not stored & {digest_of(row.id) for row in world.rows}


def test_new_rows_in_one_file_with_ids_are_measured_on(world, tmp_path):
    """A version that was trained on a folder does not know what the ids of a file say."""
    folder = tmp_path / "own"
    names = ("id", *COLUMNS, "Tags")
    write(folder / "train.csv", world.rows[:1000], names)
    write(folder / "dev.csv", world.rows[1000:1100], names)
    write(folder / "test.csv", world.rows[1100:1200], names)
    registry = tmp_path / "registry"
    longtail.train(
        folder, corpus=OPTIONS, registry=registry, work=tmp_path / "work",
        scorers=["sparse", "neighbours"], warmup_texts=0,
    )  # fmt: skip
    new = write(tmp_path / "new.csv", rows_of(5, 400), names)
    assert right(longtail.evaluate(new, registry=registry, corpus=OPTIONS).metrics[SCORER]["P@1"])


def run(*words: object) -> Any:
    return CliRunner().invoke(longtail.app, list(map(str, words)))


def command(world: World, name: str, data: Path, folder: Path, *more: object) -> dict[str, Any]:
    """Return the figures of a command that measures one version."""
    output = folder / ("page.html" if name == "report" else "out")
    figures = folder / "figures.json"
    done = run(
        name, data, *WORDS, "--registry", world.registry, "--output", output, "--no-baselines",
        "--overwrite", "--json", figures, *more,
    )  # fmt: skip
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    content: dict[str, Any] = json.loads(figures.read_text())
    return content


@pytest.mark.parametrize("name", ["evaluate", "report"])
def test_a_command_counts_what_it_leaves_out(name, world, tmp_path):
    write(tmp_path / "sub" / "test.csv", [*world.rows[:100], *rows_of(2, 300)])
    found = command(world, name, tmp_path / "sub", tmp_path, "--split", "test")
    counted = found["figures"]["trained_on"]
    assert counted["documents"] == 400 and 80 <= counted["trained_on"] < 100
    with pytest.raises(LongtailError, match="trained on"):
        command(world, name, world.file, tmp_path, "--split", "train")


def test_a_version_without_record_says_that_it_cannot_know(world, tmp_path, caplog):
    write(tmp_path / "sub" / "test.csv", rows_of(2, 300))
    found = longtail.evaluate(tmp_path / "sub", registry=world.registry, version=4, corpus=OPTIONS)
    assert "can't be known" in repr(found) and "can't be known" in caplog.text
    assert "can't be known" not in repr(
        longtail.evaluate(world.file, registry=world.registry, version=4, corpus=OPTIONS)
    )


def test_promotion_judges_by_documents_that_neither_version_was_trained_on(world, tmp_path):
    words = ("--registry", world.registry, *WORDS, "--candidate", 1)
    done = run("promote", "--data", world.file, "--split", "train", *words)
    assert isinstance(done.exception, LongtailError) and "trained on" in str(done.exception)
    write(tmp_path / "sub" / "test.csv", [*world.rows[:100], *rows_of(2, 300)])
    labels = [{"id": f"topic{row}", "name": f"topic{row}"} for row in range(NUM_LABELS)]
    (tmp_path / "sub" / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    done = run("promote", "--data", tmp_path / "sub", "--split", "test", *words)
    row = next(x for x in done.output.splitlines() if x.startswith("| P@5 "))
    num_documents = int(row.split("|")[2])
    (num_left_out,) = re.findall(r"(\d+) of 400 documents were trained on", done.output)
    assert num_documents + int(num_left_out) == 400
    assert "no metric is shown to be better" in str(done.exception)


def test_rankings_are_compared_on_documents_that_no_model_was_trained_on(world, tmp_path):
    for version in (1, 2):
        command(
            world, "evaluate", world.file, tmp_path, "--predictions", "--version", version,
            "--output", tmp_path / str(version),
        )  # fmt: skip
    paths = [tmp_path / str(version) / "predictions" / f"{SCORER}.npz" for version in (1, 2)]
    done = run("compare", *paths, world.file, "--json", tmp_path / "compared.json")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "compared.json").read_text())
    left_out = [json.loads((x.parent / "documents.json").read_text())["left_out"] for x in paths]
    assert found["figures"]["trained_on"]["trained_on"] == len({*left_out[0], *left_out[1]})
    assert run("compare", *paths, world.with_ids).exit_code != 0


def test_a_dev_split_that_lies_in_train_is_refused(world, tmp_path):
    write(tmp_path / "data" / "train.csv", world.rows)
    write(tmp_path / "data" / "dev.csv", world.rows[:200])
    words = ("--registry", tmp_path / "registry", "--work", tmp_path / "work")
    columns = [f"--{each}" for each in WORDS if each != "--read"]
    done = run("train", tmp_path / "data", *columns, "--config", "sparse", *words)
    assert isinstance(done.exception, LongtailError)
    assert "200 of 200 documents of dev" in str(done.exception)


def test_the_record_tells_no_texts_and_can_be_left_out(world):
    bundle = Registry(world.registry).open(2)
    assert {RECORD_NAME, DIGESTS_NAME} <= set(bundle.manifest.files)
    sizes = {name: len(x) for name, x in bundle.tensors(DIGESTS_NAME).items()}
    assert sizes["train_texts"] == bundle.manifest.training_document_count
