"""Tables of the documents say what the committed records of measurements say."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from longtail.models.processor import FLAGS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
RECORDS = sorted(RESULTS.rglob("*.json"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


render = load("render")
from docs.generation import leaderboard, leaderboard_page  # noqa: E402 - render finds them
from docs.generation.claims import interval, sources, verdict  # noqa: E402


def name_of(path: Path) -> str:
    return str(path.relative_to(RESULTS)) if path.is_relative_to(RESULTS) else path.name


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("path", render.pages(), ids=name_of)
def test_the_tables_of_a_page_are_those_of_the_records(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert render.render_page(text) == text, "stale: run 'python docs/render.py'"


OURS = ("longtail ", "python ", "OMP_NUM_THREADS=", "time make")


def faults_of(path: Path, record: dict[str, Any]) -> Iterator[str]:
    """Yield what a record does not say of how it was measured."""
    if record.keys() - {"transcribed", "note"} != render.KEYS:
        yield "keys"
        return
    # Rows of the leaderboard may be made by any program.
    if (
        not record["command"].startswith(OURS if path.parent == RESULTS else "")
        or not record["command"]
    ):
        yield "command"
    if record["date"] is not None and not is_date(record["date"]):
        yield "date"
    processor = record["processor"] or {"model": "", "flags": (), "cores": 0}
    if processor.keys() != {"model", "flags", "cores"} or set(processor["flags"]) - set(FLAGS):
        yield "processor"
    if not (record.get("transcribed", False) or record["commit"]):
        yield "commit, and it was not transcribed"


def is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def test_a_record_says_how_it_was_measured() -> None:
    found = {name_of(path): list(faults_of(path, read(path))) for path in RECORDS}
    assert found and {name: faults for name, faults in found.items() if faults} == {}


def test_every_record_stands_in_a_page() -> None:
    text = "".join(page.read_text("utf-8") for page in render.pages())
    claimed = sources(RESULTS)

    def asked(path: Path) -> str:
        if path.parent != RESULTS:
            return str(path.parent.relative_to(RESULTS))
        return "claims" if path.name in claimed else path.name

    assert [name_of(x) for x in RECORDS if f"<!-- table: {asked(x)} " not in text] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"command": "make"}, {"date": "today"}, {"commit": None}, {"more": 1},
        {"processor": {"model": "x", "flags": ["no-flag"], "cores": 1}},
    ],
)  # fmt: skip
def test_a_record_with_a_fault_is_found(changes: dict[str, Any]) -> None:
    path = RESULTS / "soak.json"
    assert len(list(faults_of(path, read(path) | changes))) == 1


def test_the_leaderboard_that_sorts_is_that_of_the_records() -> None:
    made = leaderboard_page.page(RESULTS / "leaderboard")
    assert render.BOARD.read_text("utf-8") == made, "stale: run 'python docs/render.py'"
    assert not re.search(r"(src|href)=\"https?:", made)


def test_the_soak_lasted_an_hour_under_all_faults() -> None:
    figures = read(RESULTS / "soak.json")["figures"]
    assert figures["seconds"] >= 3600
    faults = {row["fault"] for row in figures["faults"]}
    assert faults >= {"compute threads killed", "jumps of the clock", "full disks"}


# ---- the program ----

TABLE = {
    "columns": [{"name": "model"}, {"name": "P@1", "digits": 2, "best": "max"}, {"name": "s"}],
    "rows": [["a", 50.5, 1200], ["b", {"mean": 61, "standard_error": 0.25}, None], ["c", 61.0, 3]],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    counts = {"P@1": 0.5, "R@10": 0.25}
    subsets = {name: {"values": counts} for name in ("all", "1-9", "0")}
    figures = {
        "plain": TABLE,
        "rows": [{"x": 1, "y": True}, {"x": 2, "z": "w"}],
        "nested": {"task": {"one": {"P@1": {"mean": 0.5, "standard_error": None}}, "two": {}}},
        "scorers": {"low": subsets, "30-NN tf-idf": {
            name: {"values": counts | {"P@1": 0.75}} for name in subsets}},
        "own": {"columns": [{"name": ""}, {"name": "s"}],
                "rows": [{"from": "x.json plain", "row": "a", "title": "A"}, ["B", 7]]},
    }  # fmt: skip
    (tmp_path / "x.json").write_text(json.dumps({"figures": figures}))
    return tmp_path


def test_the_best_of_a_column_is_bold_and_what_is_missing_is_blank() -> None:
    assert render.markdown_of(TABLE).splitlines() == [
        "| model | P@1 | s |",
        "|---|---:|---:|",
        "| a | 50.50 | 1,200 |",
        "| b | 61.00 ± 0.25 | |",
        "| c | **61.00** | 3 |",
    ]


@pytest.mark.parametrize(
    ("directive", "lines"),
    [
        (
            "x.json plain: s",
            ["| model | s |", "|---|---:|", "| a | 1,200 |", "| b | |", "| c | 3 |"],
        ),
        ("x.json rows", ["| x | y | z |", "|---:|---|---|", "| 1 | yes | |", "| 2 | | w |"]),
        ("x.json nested/task %", ["| | P@1 |", "|---|---:|", "| one | 50.00 |", "| two | |"]),
        ("x.json own", ["| | s |", "|---|---:|", "| A | 1,200 |", "| B | 7 |"]),
        (
            "x.json scorers: P@1; R@10 (no documents)",
            [
                "| scorer | P@1 | R@10 (no documents) |", "|---|---:|---:|",
                "| 30 nearest neighbours, tf-idf | **75.00** | **25.00** |",
                "| `low` | 50.00 | **25.00** |",
            ],
        ),
    ],
)  # fmt: skip
def test_a_directive_leads_to_a_table(directive: str, lines: list[str], folder: Path) -> None:
    assert render.markdown_of(render.find_table(directive, folder)).splitlines() == lines


def test_what_stands_between_the_marks_is_replaced(folder: Path) -> None:
    page = "before\n<!-- table: x.json rows: y -->\nold\n<!-- end -->\nafter\n"
    filled = render.render_page(page, folder)
    assert re.sub(r"\n+", "\n", filled) == (
        "before\n<!-- table: x.json rows: y -->\n| x | y |\n|---:|---|\n| 1 | yes |\n| 2 | |\n"
        "<!-- end -->\nafter\n"
    )
    assert render.render_page(filled, folder) == filled


@pytest.mark.parametrize(
    ("directive", "message"),
    [
        ("x.json", "expected 'FILE.json NAME'"),
        ("x.json other", "x.json: no figures 'other'; there is plain, rows"),
        ("x.json plain: t", r"no columns \['t'\]; there is \['model', 'P@1', 's'\]"),
    ],
)
def test_figures_that_are_not_there_are_named(directive: str, message: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=message):
        render.find_table(directive, folder)


# ---- claims and leaderboard ----


@pytest.mark.parametrize(
    ("tested", "expected"),
    [
        ([], "not decided"),
        (["not significant", "no difference"], "not decided"),
        (["holds", "holds"], "holds"),
        (
            ["holds", "not significant", "not significant"],
            "holds in 1 of 3 tests, else not decided",
        ),
        (["contrary", "contrary"], "doesn't hold"),
        (["contrary", "not significant"], "contrary in 1 of 2 tests, else not decided"),
        (["contrary", "holds"], "holds in 1, contrary in 1 of 2 tests"),
    ],
)
def test_a_verdict_is_what_all_corrected_tests_say(tested: list[str], expected: str) -> None:
    assert verdict(tested) == expected


def test_an_interval_of_two_seeds_is_wide_and_of_one_there_is_none() -> None:
    assert interval(1.0, 0.1, 2) == " [-0.3, 2.3]"  # t of one degree of freedom: 12.7
    assert interval(1.0, 0.1, 3) == " [0.6, 1.4]"
    assert interval(1.0, 0.1, 1) == ""


def row_of(name: str, precision: float) -> dict[str, Any]:
    values = dict.fromkeys((*leaderboard._MAIN, *leaderboard._BAND_MEASURES), precision)
    bands = dict.fromkeys(("all", "1-9", *leaderboard.BANDS), values)
    figures = {
        "name": name, "version": "x==1", "settings": "", "bands": bands | {"0": {}},
        "hierarchical": None, "probabilities": {"ECE@5": None, "micro-F1": 0.5},
        "costs": {"training_seconds": 3.4, "tuning_seconds": None, "memory_gib": 1.0,
                  "milliseconds": 0.25},
    }  # fmt: skip
    return {"command": "python x.py", "figures": figures}


def test_rows_stand_by_p_at_5_and_what_no_row_has_is_no_column(tmp_path: Path) -> None:
    for name, precision in (("low", 0.25), ("high <b>", 0.75)):
        path = tmp_path / "demo" / f"{name[:3]}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(row_of(name, precision)))
    tables = leaderboard.tables_of(tmp_path / "demo")
    names = [column["name"] for column in tables["overall"]["columns"]]
    assert [row[0] for row in tables["overall"]["rows"]] == ["high &lt;b>", "low"]
    assert "micro-F1" in names and not {"hP@5", "ECE@5"} & set(names)
    assert tables["bands R@10"]["rows"][1] == ["low", None, 25.0, 25.0, 25.0, 25.0]
    page = leaderboard_page.page(tmp_path)
    assert "high &lt;b&gt;" in page and "<b>" not in page
    assert page.count("<tr><td") == 2 * 6  # all labels, and five bands


# ---- numbers drawn to be measured again ----


def test_numbers_of_quality_are_drawn_and_judged_by_their_interval(tmp_path: Path) -> None:
    rerun = load("rerun")
    (number,) = {
        x for x in rerun.printed_numbers()
        if x.directive.startswith("blend-demo.json scorers") and x.row == "`fast`"
        and x.column == "P@5"
    }  # fmt: skip
    assert rerun.can_run_again(number)
    record = read(RESULTS / "blend-demo.json")
    values = record["figures"]["scorers"]["fast"]["all"]["values"]
    printed = values["P@5"]
    for change, holds in ((0.0, True), (0.02, True), (0.05, False)):
        values["P@5"] = printed + change
        (tmp_path / "blend-demo.json").write_text(json.dumps(record))
        row = rerun.judge(number, tmp_path)
        assert (row["within it"], row["printed"]) == (holds, 100 * printed)
    assert rerun.judge(number, tmp_path / "nothing")["within it"] is None
    assert rerun.judge(number, tmp_path / "nothing", 100 * printed)["within it"] is True


def test_numbers_that_were_drawn_are_judged_again(tmp_path, monkeypatch, capsys) -> None:
    rerun = load("rerun")
    file = tmp_path / "rerun.json"
    options = ["rerun.py", "--count", "3", "--json", str(file), "--seed"]
    drawn = []
    monkeypatch.setattr(sys, "argv", [*options, "1"])
    for pages in (rerun.printed_numbers(), []):
        monkeypatch.setattr(rerun, "printed_numbers", lambda pages=pages: pages)
        rerun.main()
        drawn.append(read(file))
    monkeypatch.undo()
    monkeypatch.setattr(sys, "argv", [*options, "2"])
    with pytest.raises(SystemExit, match="holds 3 numbers drawn with seed 1; to judge them give"):
        rerun.main()
    file.unlink()
    rerun.main()
    first, again = drawn
    assert first["figures"] == again["figures"]
    assert first["seeds"] == again["seeds"] == [1]
    assert first["figures"]["places"] != read(file)["figures"]["places"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"seeds": [1], "figures": {}}'])
def test_a_file_without_a_draw_is_refused(content, tmp_path, monkeypatch) -> None:
    (tmp_path / "rerun.json").write_text(content)
    monkeypatch.setattr(
        sys, "argv", ["rerun.py", "--seed", "1", "--json", str(tmp_path / "rerun.json")]
    )
    with pytest.raises(SystemExit, match="expected a draw that this program wrote"):
        load("rerun").main()
    assert (tmp_path / "rerun.json").read_text() == content


@pytest.mark.parametrize("count", ["0", "-1", "999999"])
def test_more_numbers_than_there_are_cannot_be_drawn(count, monkeypatch) -> None:
    rerun = load("rerun")
    monkeypatch.setattr(sys, "argv", ["rerun.py", "--seed", "1", "--count", count])
    with pytest.raises(SystemExit, match=f"--count: got {count}; give 1 to"):
        rerun.main()


def test_numbers_that_a_person_copied_are_not_drawn() -> None:
    rerun = load("rerun")
    copied = [x for x in rerun.printed_numbers() if x.directive == "eurlex57k.json test"]
    assert copied
    assert not any(map(rerun.can_run_again, copied))
