"""Labels of a model and choices of a Label Studio project: which is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.errors import DataError, LabelNotFoundError, RequestError
from models.files.validation import without_text
from models.labels.browsing import LabelBrowser
from models.labels.catalogue import LabelCatalogue
from service.protocols.label_config import Choice, Control, ControlKind, controls_of
from service.schemas.base import SURROGATE


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

    def chosen(
        self, result: Sequence[Mapping[str, Any]], place: str = "result"
    ) -> list[tuple[str, ...]]:
        """Return the paths that are chosen in a result, each once.

        Args:
            result: Of a prediction or an annotation; regions of other controls are passed over.
            place: Where it stands; for messages.

        Raises:
            RequestError: A region of this control is not as Label Studio writes it.
        """
        kind, name = self.control.kind, self.control.name
        paths: dict[tuple[str, ...], None] = {}
        for index, region in enumerate(result):
            if region.get("from_name") != name:
                continue
            where = f"{place}[{index}].value"
            for number, path in enumerate(_choices_of(region.get("value"), kind, where)):
                paths[_steps_of(path, f"{where}.{kind}[{number}]")] = None
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


def _choices_of(value: object, kind: ControlKind, where: str) -> Sequence[object]:
    """Return what is chosen in the value of a region.

    Raises:
        RequestError: It is no object with a list of choices.
    """
    if not isinstance(value, Mapping):
        raise RequestError(f"{where} is {without_text(value)}; expected an object with {kind!r}")
    choices = value.get(kind)
    if not isinstance(choices, list | tuple):
        raise RequestError(
            f"{where}.{kind} is {without_text(choices) if kind in value else 'missing'}; expected "
            "a list of choices, as Label Studio writes it"
        )
    return choices


def _steps_of(path: object, where: str) -> tuple[str, ...]:
    """Return the path of a choice; one of `<Choices>` is a text alone.

    Raises:
        RequestError: It is none.
    """
    steps = (path,) if isinstance(path, str) else path
    if not isinstance(steps, list | tuple) or not steps:
        raise RequestError(
            f"{where} is {without_text(path)}; expected a text, or a list of texts from the first "
            "level to the choice"
        )
    for step in steps:
        if not isinstance(step, str) or not step or SURROGATE.search(step):
            raise RequestError(
                f"{where} has {without_text(step)} among its levels; expected texts of valid "
                "Unicode that are not empty"
            )
    return tuple(steps)


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
