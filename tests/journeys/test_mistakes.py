"""What people do instead of what the READMEs say: one line a journey, with what they then read."""

from pathlib import Path

import pytest

from longtail.models.files.failures import explain

PREDICT = "predict --input docs.jsonl --output out.jsonl"

# What is typed, the exit status, and what the last line on stderr says.
MISTAKES = [
    # ---- the wrong order
    ("serve --registry none", 1, "no version 'current'; there are: none; train one with"),
    ("predict --input docs.jsonl --output o --registry none", 1, "train one with 'longtail train'"),
    ("serve --registry docs.jsonl", 1, "'docs.jsonl': is a file, expected a folder; check"),
    ("registry rollback", 1, "no earlier version to go back to"),
    # ---- misspelt
    ("predict --inptu docs.jsonl", 2, "No such option: --inptu"),
    ("registry activate one", 2, "Usage: longtail registry activate"),
    ("evaluate data --split tset", 1, "no split 'tset'; it has 'train', 'dev', 'test'"),
    # ---- an output that is an input
    ("predict --input docs.jsonl --output docs.jsonl", 1, "is the input 'docs.jsonl'"),
    ("predict --input link.jsonl --output docs.jsonl", 1, "is the input 'link.jsonl'"),
    ("predict --input docs.jsonl --output hard.jsonl --overwrite", 1, "is the input 'docs.jsonl'"),
    ("report data --output data/dev.jsonl --overwrite", 1, "is the input 'data/dev.jsonl'"),
    # ---- an output that is there, or is none
    ("report data --output full/letter.txt", 1, "already exists; pass --overwrite to replace it"),
    ("train data --config sparse --work full", 1, "holds other files ('letter.txt')"),
    ("predict --input docs.jsonl --output full", 1, "is a folder, expected a file"),
    ("predict --input docs.jsonl --output device", 1, "is a device or a pipe, expected a file"),
    ("evaluate data --output binary", 1, "'binary' is a file, expected a folder"),
    ("train data --config sparse --registry binary", 1, "'binary' is a file, expected a folder"),
    # ---- an output in the registry, which breaks the version that gets it
    ("evaluate data --output registry/1", 1, "lies in the registry 'registry', which holds"),
    ("describe --all --output registry/1/labels.jsonl --overwrite", 1, "lies in the registry"),
    # ---- options that no document can be answered with are refused before the first one
    (f"{PREDICT} --scorer nope", 1, "scorer is 'nope'; expected one of the model's: sparse"),
    (f"{PREDICT} -k 5000", 1, "k is 5000; expected 1 to 310"),
    (f"{PREDICT} --exclude 99999", 1, "--exclude: got '99999', expected the id of a label"),
    (f"{PREDICT} --threshold 0.5 --tail-dial 1", 1, "leaves no probabilities to compare with it"),
    (f"{PREDICT} --aim propensity --tail-dial 1", 1, "predict: Give only one of 'aim' and 'tail"),
    (f"{PREDICT} --include-set none", 1, "label set 'none' is not stored"),
    (f"{PREDICT} -k 0", 2, "'--k'"),
    # ---- inputs that are none
    ("predict --input none.jsonl --output out", 1, "there is no such file or folder; check the"),
    ("predict --input data --output out", 1, "data: a folder with several splits or Parquet; give"),
    ("predict --input binary --output out", 1, "binary: begins as utf-16-be and is not"),
    ("train none.csv --config sparse", 1, "none.csv: there is no such file or folder; check"),
    ("train bad.csv --config sparse", 1, "Error: bad.csv: begins as utf-16-be and is not"),
    ("train full --config sparse", 1, "no documents; looked for"),
    ("train binary --config sparse", 1, "binary: not a corpus by its name"),
    ("train torn --config sparse", 1, "1 line can't be used"),
    ("train data --config binary", 1, "configuration binary: can't be read"),
    ("registry list --registry binary", 1, "'binary': there is no such folder; check the path"),
    ("registry activate 9", 1, "no version 9; there are: 1; name one of these"),
    (
        "train data --config sparse --registry data",
        1,
        "holds other files ('dev.jsonl') and no version",
    ),
    ("learn data --feedback none", 1, "there is no such file or folder; check the"),
    ("learn data --feedback docs.jsonl", 1, "docs.jsonl, line 1: names no label; expected ids in"),
    # ---- promotions
    # ---- what is broken is found before the work
]


@pytest.fixture
def things(place):
    """What the mistakes above are made with."""
    (place / "link.jsonl").symlink_to("docs.jsonl")
    (place / "hard.jsonl").hardlink_to("docs.jsonl")
    (place / "bad.csv").write_bytes(bytes(range(256)))
    (place / "other.csv").write_text("name,tags\na,b\n")
    (place / "done").mkdir()
    for name in ("evaluation.json", "theory.json"):
        (place / "done" / name).write_text("{}")
    (place / "damaged").mkdir()
    (place / "damaged" / "registry.json").write_text("{")
    (place / "torn").mkdir()
    for path in (place / "data").iterdir():
        (place / "torn" / path.name).write_bytes(path.read_bytes())
    with (place / "torn" / "train.jsonl").open("a") as file:
        file.write('{"text": "half\n')
    return place


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, but those that a command may make for itself."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize(("words", "status", "told"), MISTAKES, ids=[x[0] for x in MISTAKES])
def test_a_mistake_is_told_in_a_sentence_and_destroys_nothing(things, run, words, status, told):
    before = contents(things)
    outcome = run(*words.split())
    assert outcome.status == status
    assert told in " ".join(outcome.err.split())
    after = contents(things)
    assert {name: after.get(name) for name in before} == before


def test_a_misspelt_variable_is_told_by_every_command(place, run, monkeypatch):
    monkeypatch.setenv("LONGTAIL_REGISTRI", "elsewhere")
    outcome = run("registry", "list")
    assert outcome.status == 1
    assert "'LONGTAIL_REGISTRI' is not a setting; did you mean 'LONGTAIL_REGISTRY'" in outcome.err


def test_the_unexpected_is_told_as_a_fault_of_ours_with_a_way_to_see_more(
    place, monkeypatch, capsys
):
    import sys

    import longtail

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr("longtail.models.bundle.registry.Registry.versions", fail)
    seen = []
    for words in (["registry", "list"], ["--debug", "registry", "list"]):
        monkeypatch.setattr(sys, "argv", ["longtail", *words])
        with pytest.raises(SystemExit) as end:
            longtail.main()
        assert end.value.code == 1
        seen.append(capsys.readouterr().err)
    assert seen[0].startswith("Error: unexpected ZeroDivisionError in test_mistakes.py, line ")
    assert "this is a fault of Longtail, please report it; 'longtail --debug ...'" in seen[0]
    assert seen[0].count("\n") == 1
    assert "Traceback" in seen[1] and seen[0].split(":")[1] in seen[1]


def test_a_package_that_lacks_something_is_told_as_what_is_missing():
    import importlib

    def told(name: str) -> str:
        try:
            try:
                importlib.import_module(name)
            except ImportError as error:
                raise ImportError("PLEASE READ THIS " * 100) from error
        except ImportError as error:
            return explain(error).message

    assert told("no_such_library").startswith(
        "Error: a package can't be imported (No module named 'no_such_library'); install what it"
    )
    assert "is a fault of Longtail" in told("longtail.no_such_module")
