"""What became of the lines of a batch or of a file."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from longtail.service.schemas.batch import BatchSummary
from longtail.service.schemas.problem import Problem


@dataclass(slots=True)
class Tally:
    """Counts lines and their answers."""

    num_lines: int = 0
    num_errors: int = 0
    num_truncated: int = 0
    versions: Counter[int] = field(default_factory=Counter)
    """Results by model version."""
    first_error: str = ""
    """Why the first line that has no answer has none, and its `index`, as in the answers."""
    num_guarded: int = 0
    """Cells of a table that get an apostrophe, for a spreadsheet would run them as formulas."""

    @property
    def num_results(self) -> int:
        """How many lines were answered."""
        return self.versions.total()

    def note_result(self, version: int, *, truncated: bool) -> None:
        """Count the result of a line.

        Args:
            version: Of the model that answered.
            truncated: Whether the text was longer than the scorer reads.
        """
        self.versions[version] += 1
        self.num_truncated += truncated

    def note_error(self, index: int, detail: str) -> None:
        """Count a line that has an error for an answer.

        Args:
            index: Number of the line, from 0.
            detail: What is wrong.
        """
        self.num_errors += 1
        self.first_error = self.first_error or f"the one with index {index}: {detail}"

    def note_answer(self, answer: bytes) -> None:
        """Count a line by its answer, as it is written.

        Raises:
            ValueError: It is not JSON.
            KeyError: It lacks a field.
            TypeError: It is no object.
        """
        content = json.loads(answer)
        if "error" in content:
            self.note_error(content["index"], content["error"]["detail"])
        else:
            self.note_result(content["version"], truncated=content["truncated"])
        self.num_lines += 1

    def summary(self, error: Problem | None) -> BatchSummary:
        """Return the counts as an answer ends with them.

        Args:
            error: Why it ends early; None where it does not.
        """
        return BatchSummary(
            complete=error is None,
            num_lines=self.num_lines,
            num_results=self.num_results,
            num_errors=self.num_errors,
            num_truncated=self.num_truncated,
            versions=dict(self.versions),
            error=error,
        )
