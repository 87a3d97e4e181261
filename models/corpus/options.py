"""What a person says of a corpus that its files don't say themselves."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How the files of a corpus are to be read; what is not given is recognised.

    Attributes:
        text_columns: Columns whose texts are joined, a line feed between them, in this order.
        label_column: Column of the labels.
        label_delimiter: What stands between the labels of a cell.
        id_column: Column of the document's id.
        group_column: Column of what documents have in common, as a patient: where they are
            confidential, documents of one group count once.
        one_row_per_label: Whether each row has one label, and rows with the same id, or without an
            id column the same text, are one document. They must stand together.
        vocabulary: The label file, where it is not in the folder under a known name.
        language: Of the labels' names, as "en", where the label file has several.
        skip_bad: Whether documents that can't be used are skipped, counted and logged rather than
            refused. A label file must be right in every line all the same.
    """

    text_columns: tuple[str, ...] = ()
    label_column: str | None = None
    label_delimiter: str | None = None
    id_column: str | None = None
    group_column: str | None = None
    one_row_per_label: bool = False
    vocabulary: Path | None = None
    language: str | None = None
    skip_bad: bool = False

    def __post_init__(self) -> None:
        """Refuse what can't be meant.

        Raises:
            ConfigError: A name is blank or given twice, or the delimiter is empty.
        """
        # As people type them, whatever the types say: one column, and a path as text.
        if isinstance(self.text_columns, str):
            object.__setattr__(self, "text_columns", (self.text_columns,))
        if isinstance(self.vocabulary, str):
            object.__setattr__(self, "vocabulary", Path(self.vocabulary))
        columns = [*self.text_columns, self.label_column, self.id_column, self.group_column]
        named = [column for column in columns if column is not None]
        if any(not column.strip() for column in named):
            raise ConfigError("columns of the corpus: got a blank name; expected names of columns")
        if len(set(named)) != len(named):
            raise ConfigError(
                f"columns of the corpus: got {', '.join(map(repr, named))}; expected each once"
            )
        if self.label_delimiter == "":
            raise ConfigError("--label-delimiter: got nothing; expected what stands between labels")

    @property
    def names_columns(self) -> bool:
        """Whether a column is named."""
        named = (self.text_columns, self.label_column, self.id_column, self.group_column)
        return any(named)

    def to_json(self) -> dict[str, Any]:
        """Return what is given, the vocabulary by its file name; empty where nothing is."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.vocabulary is not None:
            given["vocabulary"] = self.vocabulary.name
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value
        }


RECOGNISED = CorpusOptions()
"""Nothing is given: all is recognised."""
