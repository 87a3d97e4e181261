"""Labels of a model and choices of a Label Studio project: which is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

from longtail.models.errors import DataError, LabelNotFoundError, RequestError
from longtail.models.files.validation import without_text
from longtail.models.labels.browsing import MAX_SHOWN, LabelBrowser, Node
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.predict.protocol import Predictor
from longtail.service.protocols.label_config import Choice, Control, ControlKind, controls_of
from longtail.service.protocols.label_studio_schemas import TaxonomyItem
from longtail.service.schemas.base import SURROGATE
from longtail.service.schemas.feedback import MAX_LABELS
from longtail.service.versions.serving import LoadedModel

_MAX_CHOSEN = 3 * MAX_LABELS
"""Accepted, added and proposed."""

_browsers: WeakKeyDictionary[Predictor, LabelBrowser] = WeakKeyDictionary()
"""Of each model in use, as making one takes a second where there are a million labels."""
_labels: WeakKeyDictionary[Predictor, tuple[str, ControlLabels]] = WeakKeyDictionary()
"""The configuration that each model was last asked with: an event may have it a thousand times."""


@dataclass(frozen=True, slots=True)
class ControlLabels:
    """A control, and the labels that its choices stand for.

    Attributes:
        control: By which texts are labelled.
        path_of_row: The path of each choice that is a label; None: all labels, as the browser has
            them.
        row_of_path: The same the other way round; empty where all labels are choices.
        headings: Paths of choices with others below them.
    """

    control: Control
    path_of_row: Mapping[int, tuple[str, ...]] | None
    row_of_path: Mapping[tuple[str, ...], int]
    headings: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, control: Control, path_of_row: Mapping[int, tuple[str, ...]] | None) -> Self:
        """Return the labels of a control."""
        return cls(
            control,
            path_of_row,
            row_of_path={path: row for row, path in (path_of_row or {}).items()},
            headings=frozenset(each.path for each in control.choices if each.has_more),
        )

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
            RequestError: A region of this control is not as Label Studio writes it, or too many
                paths are chosen.
        """
        kind, name = self.control.kind, self.control.name
        paths: dict[tuple[str, ...], None] = {}
        for index, region in enumerate(result):
            if region.get("from_name") != name:
                continue
            where = f"{place}[{index}].value"
            for number, path in enumerate(_choices_of(region.get("value"), kind, where)):
                paths[_steps_of(path, f"{where}.{kind}[{number}]")] = None
                if len(paths) > _MAX_CHOSEN:
                    raise RequestError(
                        f"{where}.{kind} has more than {_MAX_CHOSEN} choices; expected fewer"
                    )
        return list(paths)

    def row_of(self, path: Sequence[str], browser: LabelBrowser) -> int | None:
        """Return the label of a path; None where the model has none."""
        row = self.row_of_path.get(tuple(path))
        if row is not None:
            return row
        try:
            return browser.row_of(path[-1])
        except LabelNotFoundError:
            return None

    def is_heading(self, path: Sequence[str], browser: LabelBrowser) -> bool:
        """Whether a path is that of no label, but of what stands above labels."""
        if self.path_of_row is None:
            return browser.is_heading(path[-1])
        return tuple(path) in self.headings


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
    problem = None
    for control in controls_of(config):
        if not control.choices and control.kind == "taxonomy":
            return ControlLabels.of(control, None)
        try:
            return ControlLabels.of(control, _paths(control, catalogue))
        except DataError as error:
            problem = problem or (
                f"label_config: control {control.name[:100]!r}, version {version}: "
                f"{str(error)[:500]}; give each choice the name, notation or id of a label as "
                "value, or the id as alias"
            )
    raise RequestError(str(problem))


def labels_of(config: str, model: LoadedModel) -> ControlLabels:
    """Return `control_labels` of a model, which keeps those of its last configuration.

    Raises:
        RequestError: As `control_labels` does.
    """
    known = _labels.get(model.predictor)
    if known is None or known[0] != config:
        known = config, control_labels(config, model.predictor.catalogue, model.version)
        _labels[model.predictor] = known
    return known[1]


def browser_of(predictor: Predictor) -> LabelBrowser:
    """Return the browser of a model's labels; it is made once."""
    browser = _browsers.get(predictor)
    if browser is None:
        browser = LabelBrowser(predictor.catalogue, predictor.selector.hierarchy)
        _browsers[predictor] = browser
    return browser


def taxonomy_items(model: LoadedModel, path: Sequence[str], query: str) -> list[TaxonomyItem]:
    """Return what stands right below a path, or else the labels that a query finds.

    Raises:
        LabelNotFoundError: The path leads nowhere.
    """
    predictor = model.predictor
    browser = browser_of(predictor)
    if path or not query.strip():
        nodes = browser.below(path)
    else:
        rows = predictor.label_search.find(query, limit=MAX_SHOWN).labels
        nodes = [
            Node(browser.element_of(row), predictor.catalogue[row].name, row, has_more=False)
            for row in rows
            if not predictor.catalogue[row].is_retired
        ]
    return [
        TaxonomyItem(
            value=node.name,
            alias=node.element,
            is_leaf=not node.has_more,
            hint=(node.row is not None and predictor.catalogue[node.row].description) or None,
        )
        for node in nodes
    ]


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
