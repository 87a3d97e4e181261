"""The mapping between labels of a model and choices of a Label Studio project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from longtail.ext.label_studio.label_config import Choice, Control, controls_of
from longtail.ext.label_studio.schemas import TaxonomyItem
from longtail.models.errors import DataError, LabelNotFoundError, RequestError
from longtail.models.files.typed_json import problem_in_words
from longtail.models.labels.browsing import MAX_SHOWN, LabelBrowser, Node
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.options import Listed
from longtail.models.predict.predictor import Predictor
from longtail.service.schemas.base import Text
from longtail.service.schemas.feedback import MAX_LABELS
from longtail.service.versions.serving import ServedModel

_MAX_CHOSEN = 3 * MAX_LABELS
"""Accepted, added and proposed."""
_Path = Annotated[
    Listed[Text],
    Field(min_length=1),
    BeforeValidator(lambda path: [path] if isinstance(path, str) else path),
]
"""The levels down to a choice; `<Choices>` writes the choice alone."""
_PATHS: TypeAdapter[list[list[str]]] = TypeAdapter(Listed[_Path])

_browsers: WeakKeyDictionary[Predictor, LabelBrowser] = WeakKeyDictionary()
"""One for each model in use: making one takes a second where there are a million labels."""
_labels: WeakKeyDictionary[Predictor, tuple[str, ControlLabels]] = WeakKeyDictionary()
"""The last configuration of each model: an event may need it a thousand times."""


@dataclass(frozen=True, slots=True)
class ControlLabels:
    """A control, and the labels of its choices.

    Attributes:
        control: The control that labels texts.
        browser: The labels of the model as paths.
        row_of_path: The label of each choice, None for a heading; empty where all labels are
            choices, whose paths are those of the browser.
        path_of_row: The same the other way round, without headings.
    """

    control: Control
    browser: LabelBrowser
    row_of_path: Mapping[tuple[str, ...], int | None]
    path_of_row: Mapping[int, tuple[str, ...]]

    def value_of(self, rows: Iterable[int]) -> dict[str, Any]:
        """Return how Label Studio writes that these labels are chosen."""
        path_of = self.path_of_row.__getitem__ if self.path_of_row else self.browser.path_of
        paths = [list(path_of(row)) for row in rows]
        if self.control.kind == "taxonomy":
            return {"taxonomy": paths}
        return {"choices": [path[-1] for path in paths]}

    def chosen(
        self, result: Sequence[Mapping[str, Any]], place: str = "result"
    ) -> list[tuple[str, ...]]:
        """Return the paths that are chosen in a result, each once.

        Args:
            result: Result of a prediction or an annotation; regions of other controls are skipped.
            place: Its position, for messages.
        """
        kind = self.control.kind
        paths: dict[tuple[str, ...], None] = {}
        for index, region in enumerate(result):
            if region.get("from_name") != self.control.name:
                continue
            value, where = region.get("value"), f"{place}[{index}].value.{kind}"
            try:
                found = _PATHS.validate_python(value.get(kind) if isinstance(value, dict) else None)
            except ValidationError as error:
                problem = error.errors(include_url=False)[0]
                steps = "".join(f"[{step}]" for step in problem["loc"])
                raise RequestError(f"{where}{steps}: {problem_in_words(problem)}") from error
            paths |= dict.fromkeys(map(tuple, found))
            if len(paths) > _MAX_CHOSEN:
                raise RequestError(f"{where} has more than {_MAX_CHOSEN} choices; expected fewer")
        return list(paths)

    def row_of(self, path: tuple[str, ...]) -> int | None:
        """Return the label of a path; None where the model has none."""
        if path in self.row_of_path:
            return self.row_of_path[path]
        try:
            return self.browser.row_of(path[-1])
        except LabelNotFoundError:
            return None

    def is_heading(self, path: tuple[str, ...]) -> bool:
        """Whether a path without a label is that of a heading above labels."""
        return path in self.row_of_path or (
            not self.row_of_path and self.browser.is_heading(path[-1])
        )


def labels_of(config: str, model: ServedModel) -> ControlLabels:
    """Return the first control whose choices are all labels of a model."""
    known = _labels.get(model.predictor)
    if known is None or known[0] != config:
        known = _labels[model.predictor] = config, _find_labels(config, model)
    return known[1]


def _find_labels(config: str, model: ServedModel) -> ControlLabels:
    browser = browser_of(model.predictor)
    problems = []
    for control in controls_of(config):
        if not control.choices and control.kind == "taxonomy":
            return ControlLabels(control, browser, {}, {})
        try:
            rows = _rows(control.choices, model.predictor.catalogue)
        except DataError as error:
            problems.append(
                f"label_config: control {control.name[:100]!r}, version {model.version}: "
                f"{str(error)[:500]}; give each choice the name, notation or id of a label as "
                "value, or the id as alias"
            )
        else:
            paths = {row: path for path, row in rows.items() if row is not None}
            return ControlLabels(control, browser, rows, paths)
    raise RequestError(problems[0])


def browser_of(predictor: Predictor) -> LabelBrowser:
    """Return the browser of a model's labels; it is made once."""
    browser = _browsers.get(predictor)
    if browser is None:
        browser = LabelBrowser(predictor.catalogue, predictor.scorers.selector.hierarchy)
        _browsers[predictor] = browser
    return browser


def taxonomy_items(model: ServedModel, path: Sequence[str], query: str) -> list[TaxonomyItem]:
    """Return the items directly below a path, or else the labels that a query finds."""
    predictor = model.predictor
    browser = browser_of(predictor)
    if path or not query.strip():
        nodes = browser.below(path)
    else:
        rows = predictor.label_search.find(query, limit=MAX_SHOWN).labels
        nodes = [
            Node(browser.element_of(row), predictor.catalogue[row].name, row, has_more=False)
            for row in rows
            if predictor.catalogue[row].is_in_use
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


def _rows(
    choices: Iterable[Choice], catalogue: LabelCatalogue
) -> dict[tuple[str, ...], int | None]:
    """Return the label of each choice by its path; None for a heading with other choices below."""
    rows: dict[tuple[str, ...], int | None] = {}
    paths: dict[int, tuple[str, ...]] = {}
    for choice in choices:
        own = choice.path[-1]
        try:
            row = catalogue.index_of(own if catalogue.knows(own) else choice.value)
        except DataError:
            if not choice.has_more:
                raise
            rows[choice.path] = None
            continue
        if row in paths:
            raise DataError(f"choices {paths[row]} and {choice.path} are the same label")
        rows[choice.path], paths[row] = row, choice.path
    if not paths:
        raise DataError("it has no choices")
    return rows
