"""Tables of the documents say what the committed records of measurements say."""

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
