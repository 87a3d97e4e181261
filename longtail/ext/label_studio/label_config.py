"""The labelling configuration of a Label Studio project: the controls that label texts.

https://labelstud.io/tags: `<Choices>` and `<Taxonomy>` on a `<Text>`. Names of tags and attributes
are read in any case, as Label Studio's editor does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias
from xml.etree.ElementTree import Element, ParseError, fromstring

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from longtail.models.errors import RequestError
from longtail.models.files.typed_json import problem_in_words

ControlKind: TypeAlias = Literal["choices", "taxonomy"]
_CONTROL_TAGS = ("choices", "taxonomy")
_MAX_DEPTH = 50
_MAX_CHARACTERS = 2**20
_MAX_SIGNS = 60_000
"""Most `<` and `=` of a configuration, which bound its tags and attributes."""
_MAX_TEMPLATE_CHARACTERS = 1000
_VARIABLE = re.compile(r"\$([\w.]+)")


class Choice(NamedTuple):
    """A choice of a control.

    Attributes:
        path: The path that Label Studio stores: aliases, or else values, down to this choice.
        value: The displayed text.
        has_more: Whether there are choices below it.
    """

    path: tuple[str, ...]
    value: str
    has_more: bool


class Control(BaseModel):
    """A tag by which people label texts, with the attributes that matter here."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    kind: ControlKind
    name: str = ""
    toname: str
    """Name of the tag that shows the text."""
    template: tuple[str, ...]
    """The text of a task: every second piece is the name of a field."""
    choices: tuple[Choice, ...]
    """Choices in the configuration; empty if Label Studio asks for them at `apiUrl`."""
    choice: str = "single"
    maxusages: int | None = Field(None, ge=1)
    model_k: int = Field(5, ge=1)
    model_score_threshold: float | None = Field(None, ge=0, le=1)
    model_scorer: str | None = None

    @property
    def num_labels(self) -> int:
        """Labels to predict, at most as many as may be chosen."""
        if self.kind == "choices" and not self.choice.startswith("multiple"):
            return 1
        return min(self.model_k, self.maxusages or self.model_k)

    def text_of(self, data: Mapping[str, Any], max_characters: int) -> str:
        """Return the text of a task.

        Args:
            data: The data of the task.
            max_characters: Most characters of the text; longer ones are not built.
        """
        pieces = list(self.template)
        pieces[1::2] = [_field(data, name) for name in pieces[1::2]]
        length = sum(map(len, pieces))
        if length > max_characters:
            raise RequestError(
                f"data: the text that <Text> shows has {length} characters; expected at most "
                f"{max_characters}; shorten it"
            )
        return "".join(pieces)

    def texts_of(
        self, tasks: Iterable[Mapping[str, Any]], max_characters: int, max_in_all: int
    ) -> list[str]:
        """Return the text of each task; `max_in_all` bounds the characters of all of them."""
        texts, left = [], max_in_all
        for data in tasks:
            texts.append(self.text_of(data, max_characters))
            left -= len(texts[-1])
            if left < 0:
                raise RequestError(
                    f"tasks: their texts have more than {max_in_all} characters in all; send fewer "
                    "tasks at a time"
                )
        return texts


def controls_of(config: str) -> list[Control]:
    """Return the controls on texts, in their order."""
    elements = list(_parsed(config).iter())
    texts = {each.attrib.get("name", ""): each for each in elements if each.tag == "text"}
    controls = [
        _control(each, texts[each.attrib["toname"]])
        for each in elements
        if each.tag in _CONTROL_TAGS and each.attrib.get("toname") in texts
    ]
    if not controls:
        raise RequestError(
            "label_config: there is no <Choices> and no <Taxonomy> whose toName is the name of a "
            "<Text>; add one"
        )
    return controls


def _parsed(config: str) -> Element:
    if len(config) > _MAX_CHARACTERS or config.count("<") + config.count("=") > _MAX_SIGNS:
        raise RequestError(
            f"label_config: it has more than {_MAX_CHARACTERS} characters, or more than "
            f"{_MAX_SIGNS} tags and attributes; use <Taxonomy> with apiUrl, which asks for labels "
            "a level at a time"
        )
    if "<!DOCTYPE" in config or "<!ENTITY" in config:
        raise RequestError("label_config: it declares a document type; leave that out")
    try:
        root = fromstring(config)  # noqa: S314  # without declarations there are no entities
    except (ParseError, ValueError) as error:
        raise RequestError(f"label_config: it is not XML ({error})") from error
    level = [root]
    for _ in range(_MAX_DEPTH):
        for each in level:
            each.tag = each.tag.lower()
            each.attrib = {name.lower(): value for name, value in each.attrib.items()}
        level = [child for each in level for child in each]
    if level:
        raise RequestError(f"label_config: tags stand more than {_MAX_DEPTH} deep; expected fewer")
    return root


def _control(element: Element, text: Element) -> Control:
    attributes = element.attrib
    name = attributes.get("name", "")[:100]
    if element.tag == "choices" and "value" in attributes:
        raise RequestError(
            f"label_config: <Choices name={name!r}> takes its choices from the task; write "
            "them into the configuration, or use <Taxonomy> with apiUrl"
        )
    is_remote = element.tag == "taxonomy" and "apiurl" in attributes
    fields: dict[str, Any] = {name: value for name, value in attributes.items() if value}
    fields["kind"] = element.tag
    fields["template"] = _template(text.attrib)
    fields["choices"] = () if is_remote else tuple(_choices(element, element))
    try:
        return Control(**fields)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise RequestError(
            f"label_config: control {name!r}: {problem['loc'][0]}: "
            f"{problem_in_words(problem, lambda value: repr(str(value)[:40]))}"
        ) from error


def _template(attributes: Mapping[str, str]) -> tuple[str, ...]:
    name, value = attributes.get("name", "")[:100], attributes.get("value", "")
    if attributes.get("valuetype", "text") != "text":
        raise RequestError(
            f"label_config: <Text name={name!r}> shows what lies at a URL, which is not fetched; "
            "put the text itself into the tasks"
        )
    pieces = _VARIABLE.split(value)
    if len(pieces) == 1 or len(value) > _MAX_TEMPLATE_CHARACTERS:
        raise RequestError(
            f"label_config: <Text name={name!r}> has the value {value[:100]!r}; expected a field "
            f"of the task, such as '$text', and at most {_MAX_TEMPLATE_CHARACTERS} characters"
        )
    return tuple(pieces)


def _choices(element: Element, control: Element, above: tuple[str, ...] = ()) -> Iterator[Choice]:
    for each in element:
        name = control.attrib.get("name", "")[:100]
        if each.tag in _CONTROL_TAGS:
            raise RequestError(
                f"label_config: another control stands inside of control {name!r}; put it beside"
            )
        if each.tag != "choice":
            yield from _choices(each, control, above)
            continue
        value = each.attrib.get("value", "")
        path = (*above, each.attrib.get("alias") or value)
        below = tuple(_choices(each, control, path))
        if below and control.tag == "choices":
            raise RequestError(
                f"label_config: choice {value[:100]!r} of <Choices name={name!r}> has choices "
                "below it; use <Taxonomy> for that"
            )
        yield Choice(path, value, has_more=bool(below))
        yield from below


def _field(data: Mapping[str, Any], name: str) -> str:
    value: Any = data
    for step in name.rstrip(".").split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if not isinstance(value, str):
        raise RequestError(
            f"data: the task has no text in the field {name[:100]!r}, which <Text> shows; give it"
        )
    return value
