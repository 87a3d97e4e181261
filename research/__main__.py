"""`python -m research`: repeat the papers' experiments on a corpus, in the folder of the source."""

from __future__ import annotations

import sys

from longtail.models.errors import LongtailError
from longtail.models.extras import require
from longtail.models.files.failures import explain


def main() -> None:
    """Run the command; a failure ends it with one sentence."""
    try:
        for extra in ("cpu", "plots"):
            require(extra, "python -m research")
        from research.commands import app

        app(prog_name="python -m research")
    except (LongtailError, OSError) as error:
        sys.exit(explain(error).message)


if __name__ == "__main__":
    main()
