"""Tables of the documents say what the committed records of measurements say."""

import json

import pytest

from docs import render
from docs.generation import leaderboard, leaderboard_page

RESULTS = render.RESULTS
BOARD = RESULTS / leaderboard.FILE


@pytest.mark.parametrize("path", render.pages(), ids=lambda path: path.name)
def test_the_tables_of_a_page_are_those_of_the_records(path):
    assert render.render_page(path) == path.read_text("utf-8"), "run 'python docs/render.py'"


def test_the_leaderboard_that_sorts_is_that_of_the_records():
    assert render.BOARD.read_text("utf-8") == leaderboard_page.page(BOARD)


def test_figures_of_longtail_are_of_this_code():
    rows = json.loads(BOARD.read_text("utf-8"))["rows"]
    ours = [x for x in rows if x["figures"].get("of") == leaderboard.OURS]
    outdated = [x["figures"]["name"] for x in ours if not is_current(x)]
    assert ours and not outdated, (
        "'make evidence' measures them again; 'python tests/bench/leaderboard/evidence.py "
        "--outdated' marks them as older"
    )


def is_current(row):
    return row["figures"]["code"] == leaderboard.code_digest()


def test_the_demo_that_a_release_is_compared_with_is_of_this_code():
    figures = json.loads((RESULTS / "demo-digest.json").read_text("utf-8"))["figures"]
    assert figures["code"] == leaderboard.code_digest(), (
        "run 'python tests/contracts/demo_digest.py --write'"
    )


def test_the_digest_changes_with_the_code_and_not_with_its_words(tmp_path, monkeypatch):
    monkeypatch.setattr(leaderboard, "_CODE", tmp_path)
    digest = leaderboard.code_digest.__wrapped__
    (tmp_path / "models").mkdir()
    source, kernel = tmp_path / "models" / "a.py", tmp_path / "models" / "a.c"
    kernel.write_text("#define K 2\n")
    source.write_text("x = 1\n")
    before = digest()
    source.write_text('"""About."""\n\n# A comment.\nx = 1\n')
    kernel.write_text("// A comment.\n#define K 2\n")
    assert digest() == before
    source.write_text("x = 2\n")
    changed = digest()
    kernel.write_text("#define K 3\n")
    assert len({before, changed, digest()}) == 3
