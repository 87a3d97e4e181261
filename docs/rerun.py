"""Draws numbers from the pages at random, and judges them by records that were made again.

    python docs/rerun.py --seed 7 --count 10               # which numbers, and their commands
    python docs/rerun.py --seed 7 --count 10 --fresh AGAIN --json docs/results/rerun.json

Drawn are measures of quality from records that a program wrote, not those that a person copied from
an older page. AGAIN holds the records that the commands wrote, each under the name that it has in
`docs/results`. A drawn number whose record is not there counts as not run again, and stays. Where
the file of `--json` is there, its numbers are judged instead, so that none is drawn anew because a
page has got more of them; what came out again before stays too. Seed and count must be its own.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the code beside these pages, not an installed one

from docs import render  # noqa: E402
from docs.generation.leaderboard import read_rows  # noqa: E402
from longtail.training.evaluation.record import make_record, write_record  # noqa: E402

_MEASURE = re.compile(r"(P|R|RP|nDCG|PSP|macro-F1|hP|hR|ECE|micro-F1|coverage)(@\d+)?\b")
_NUMBERS = ("printed", "again", "half of the interval")
_OUTCOMES_OF_95_PERCENT = 1.96


@dataclass(frozen=True, order=True)
class Printed:
    """A number that stands in a table of a page.

    Attributes:
        page: Where, from the root.
        directive: Of the table.
        row: Its first cell.
        column: Its heading.
    """

    page: str
    directive: str
    row: str
    column: str

    @property
    def is_measure(self) -> bool:
        """Whether it is one of quality, in percent; else it is a time, a size or a count."""
        return any(_MEASURE.match(x) for x in (self.column, self.directive.rpartition(" ")[2]))


@dataclass(frozen=True)
class _Draw:
    """Numbers that were drawn.

    Attributes:
        numbers: Each with what came out when it was last run again, if it was.
        of: How many numbers it was drawn from.
        seed: Of the draw.
    """

    numbers: tuple[tuple[Printed, float | None], ...]
    of: int
    seed: int


def printed_numbers() -> list[Printed]:
    """Return all numbers of all tables, each once."""
    found = {number for path in render.pages() for number in _numbers_of(path)}
    return sorted(found)


def _numbers_of(path: Path) -> Iterator[Printed]:
    page = str(path.relative_to(ROOT))
    for directive in re.findall(r"<!-- table: (.+?) -->", path.read_text(encoding="utf-8")):
        if "rerun.json" in directive:
            continue
        for part in directive.split(" + "):
            table = render.find_table(part)
            for row in table["rows"]:
                for cell, column in zip(row[1:], table["columns"][1:], strict=True):
                    if render.value_of(cell) is not None:
                        yield Printed(page, part, str(row[0]), str(column["name"]))


def cell_of(number: Printed, folder: Path) -> Any:
    """Return what stands there by the records of a folder; None where they have no such number."""
    if not record_of(number, folder):
        return None
    table = render.find_table(number.directive, folder)
    names = [column["name"] for column in table["columns"]]
    rows = {str(row[0]): row for row in table["rows"]}
    row = rows.get(number.row)
    return None if row is None or number.column not in names else row[names.index(number.column)]


def record_of(number: Printed, folder: Path) -> dict[str, Any]:
    """Return the record that a number comes from."""
    file = number.directive.split()[0]
    if file.startswith("leaderboard/"):
        found = [x for x in read_rows(folder / file) if x["figures"]["name"] == number.row]
        return found[0] if found else {}
    path = folder / file
    content: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return content


def can_run_again(number: Printed) -> bool:
    """Whether it is a measure of quality that a program wrote."""
    record = record_of(number, render.RESULTS)
    return number.is_measure and bool(record) and not record.get("transcribed", False)


def half_width(number: Printed, cell: Any, record: Mapping[str, Any]) -> float | None:
    """Return half of the 95 % interval of a measure in percent; None where nothing tells it.

    From the standard error over seeds where there is one (of a difference of two: times the root of
    2); else from the number n of what the mean is over, documents or labels, by the largest
    variance that numbers between 0 and 100 with mean x can have, x (100 - x) / n.
    """
    if isinstance(cell, Mapping) and cell.get("standard_error") is not None:
        return _OUTCOMES_OF_95_PERCENT * math.sqrt(2) * float(cell["standard_error"])
    mean, size = render.value_of(cell), _size(number, record.get("figures", {}))
    if not number.is_measure or size is None or mean is None or not 0 <= mean <= 100:
        return None
    return _OUTCOMES_OF_95_PERCENT * math.sqrt(mean * (100 - mean) / size)


def _size(number: Printed, figures: Mapping[str, Any]) -> int | None:
    """Return how many documents, or labels for a macro mean, a measure is over."""
    heading = f"{number.directive.rpartition(' ')[2]} {number.column}"
    if "bands" in figures:
        band = number.column if number.column in figures["documents"] else "all"
        return int(figures["documents"]["1-9" if "(1-9)" in heading else band])
    of_title = {title: name for name, title in render.TITLES.items()}
    name = of_title.get(number.row, number.row.strip("`"))
    scorer = figures.get("scorers", {}).get(name)
    if scorer is None:
        return None
    band = next((x for x in ("1-9", "no documents") if f"({x}" in number.column), "all")
    of_band = scorer["0" if band == "no documents" else band]
    return int(of_band["num_true_labels" if "macro" in heading else "num_documents"])


def judge(number: Printed, fresh: Path | None, again_before: float | None = None) -> dict[str, Any]:
    """Return a row of the table: what is printed, what came out again, and whether it holds.

    Args:
        number: One that is printed.
        fresh: Folder of records made again.
        again_before: What came out when it was last run again, if it was.
    """
    cell = cell_of(number, render.RESULTS)
    record = record_of(number, render.RESULTS)
    before, width = render.value_of(cell), half_width(number, cell, record)
    again = None if fresh is None else render.value_of(cell_of(number, fresh))
    again = again_before if again is None else again
    holds = None
    if again is not None and before is not None and width is not None:
        holds = abs(again - before) <= width
    return {
        "number": f"`{number.directive.partition(':')[0]}`: {number.row}, {number.column}",
        "place": asdict(number),
        "printed": before,
        "again": again,
        "half of the interval": width,
        "within it": holds,
        "command": f"`{record['command']}`" if record else "",
    }


def main() -> None:
    """Draw, and print or keep what came out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--fresh", type=Path, metavar="FOLDER", help="of records made again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table here")
    chosen = parser.parse_args()
    draw = None if chosen.json is None else _read_draw(chosen.json)
    if draw is None:
        draw = _draw(chosen.seed, chosen.count)
    _check_same(draw, chosen)
    rows = [judge(number, chosen.fresh, again) for number, again in draw.numbers]
    print(f"{len(rows)} of the {draw.of} numbers of the pages, drawn with seed {draw.seed}:")
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))
    if chosen.json is not None:
        figures = {"drawn": _table(rows), "places": [x["place"] for x in rows], "of": draw.of}
        write_record(chosen.json, make_record(figures, seeds=[draw.seed]))


def _table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [name for name in rows[0] if name != "place"]
    columns = [{"name": name} | ({"digits": 3} if name in _NUMBERS else {}) for name in names]
    return {"columns": columns, "rows": [[row[name] for name in names] for row in rows]}


def _draw(seed: int, count: int) -> _Draw:
    every = [x for x in printed_numbers() if can_run_again(x)]
    if not 0 < count <= len(every):
        raise SystemExit(f"--count: got {count}; give 1 to {len(every)}, as many as can be drawn")
    drawn = random.Random(seed).sample(every, count)  # noqa: S311 - no secret
    return _Draw(tuple((number, None) for number in drawn), len(every), seed)


def _check_same(draw: _Draw, chosen: argparse.Namespace) -> None:
    count = len(draw.numbers)
    if (draw.seed, count) != (chosen.seed, chosen.count):
        raise SystemExit(
            f"{chosen.json}: holds {count} numbers drawn with seed {draw.seed}; to judge them give "
            f"--seed {draw.seed} --count {count}, to draw others another file"
        )


def _read_draw(path: Path) -> _Draw | None:
    """Return the draw of a file, with what came out of each number again; None without the file."""
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text("utf-8"))
        figures, (seed,) = record["figures"], record["seeds"]
        again = [x["name"] for x in figures["drawn"]["columns"]].index("again")
        rows = zip(figures["places"], figures["drawn"]["rows"], strict=True)
        numbers = tuple((Printed(**place), row[again]) for place, row in rows)
        return _Draw(numbers, figures["of"], seed)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise SystemExit(
            f"{path}: {type(error).__name__}: {error}; expected a draw that this program wrote; "
            "give another file to draw anew"
        ) from error


if __name__ == "__main__":
    main()
