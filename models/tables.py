"""Tables as notebooks show them, and data frames, for which pandas is imported only when asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from longtail.models.extras import require


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table in HTML; whatever stands in the cells is text and never markup.

    Args:
        headings: Of the columns.
        rows: Cells in the order of the columns; None is an empty cell, and numbers with a decimal
            point have four digits behind it.
        caption: What stands above.
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(shown(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def shown(cell: object) -> str:
    """Return a cell as people read it."""
    if cell is None:
        return ""
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)


def frame_of(columns: Mapping[str, Sequence[object]]) -> Any:
    """Return a `pandas.DataFrame`.

    Args:
        columns: By their names, all of one length.

    Raises:
        ConfigError: pandas is not installed.
    """
    require("pandas", "a data frame")
    import pandas

    return pandas.DataFrame(dict(columns))
