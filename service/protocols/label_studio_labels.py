"""Labels of a model and choices of a Label Studio project: which is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.errors import DataError, LabelNotFoundError, RequestError
from models.labels.browsing import LabelBrowser
from models.labels.catalogue import LabelCatalogue
from service.protocols.label_config import Choice, Control, controls_of


@dataclass(frozen=True, slots=True)
class ControlLabels:
    """A control, and the labels that its choices stand for.

    Attributes:
        control: By which texts are labelled.
        path_of_row: The path of each choice that is a label; None: all labels, as the browser has
            them.
    """

    control: Control
    path_of_row: Mapping[int, tuple[str, ...]] | None

    def value_of(self, rows: Sequence[int], browser: LabelBrowser) -> dict[str, Any]:
        """Return how Label Studio writes that these labels are chosen."""
        paths = [
            browser.path_of(row) if self.path_of_row is None else self.path_of_row[row]
            for row in rows
        ]
        if self.control.kind == "taxonomy":
            return {"taxonomy": [list(path) for path in paths]}
        return {"choices": [path[-1] for path in paths]}

    def chosen(self, result: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
        """Return the paths that are chosen in a result, each once.

        Args:
            result: Of a prediction or an annotation; regions of other controls are passed over.

        Raises:
            RequestError: A region of this control is not as Label Studio writes it.
        """
        kind, name = self.control.kind, self.control.name
        paths: dict[tuple[str, ...], None] = {}
        for region in result:
            if region.get("from_name") != name:
                continue
            value = region.get("value")
            for path in value.get(kind, ()) if isinstance(value, Mapping) else ():
                steps = (path,) if isinstance(path, str) else path
                if not steps or not all(isinstance(step, str) for step in steps):
                    raise RequestError(
                        f"result: control {name!r} has a choice that is no text and no path of "
                        "texts; send results as Label Studio writes them"
                    )
                paths[tuple(steps)] = None
        return list(paths)

    def row_of(self, path: Sequence[str], browser: LabelBrowser) -> int | None:
        """Return the label of a path; None where the model has none."""
        if self.path_of_row is not None:
            for row, known in self.path_of_row.items():
                if known == tuple(path):
                    return row
        try:
            return browser.row_of(path[-1])
        except LabelNotFoundError:
            return None

    def is_heading(self, path: Sequence[str], browser: LabelBrowser) -> bool:
        """Whether a path is that of no label, but of what stands above labels."""
        if self.path_of_row is None:
            return browser.is_heading(path[-1])
        return any(each.has_more and each.path == tuple(path) for each in self.control.choices)


def control_labels(config: str, catalogue: LabelCatalogue, version: int) -> ControlLabels:
    """Return the first control whose choices are labels of a model.

    Args:
        config: The labelling configuration of the project.
        catalogue: The labels of the model.
        version: Of the model; for messages.

    Raises:
        RequestError: The configuration can't be used; or no control's choices are all labels. The
            message says of the first control what is wrong.
    """
    problems = []
    for control in controls_of(config):
        if not control.choices and control.kind == "taxonomy":
            return ControlLabels(control, None)
        try:
            return ControlLabels(control, _paths(control, catalogue))
        except DataError as error:
            problems.append(
                f"label_config: control {control.name!r}, version {version}: {error}; give each "
                "choice the name, notation or id of a label as value, or the id as alias"
            )
    raise RequestError(problems[0])


def _paths(control: Control, catalogue: LabelCatalogue) -> dict[int, tuple[str, ...]]:
    """Return the path of each label among the choices; what choices stand below may be a heading.

    Raises:
        DataError: A choice is no label, or two are the same one; or there are none.
    """
    paths: dict[int, tuple[str, ...]] = {}
    for choice in control.choices:
        try:
            row = _row_of(choice, catalogue)
        except DataError:
            if choice.has_more:
                continue
            raise
        if row in paths:
            raise DataError(f"choices {paths[row]} and {choice.path} are the same label")
        paths[row] = choice.path
    if not paths:
        raise DataError("it has no choices")
    return paths


def _row_of(choice: Choice, catalogue: LabelCatalogue) -> int:
    if catalogue.knows(choice.path[-1]):
        return catalogue.index_of(choice.path[-1])
    return catalogue.index_of(choice.value)
