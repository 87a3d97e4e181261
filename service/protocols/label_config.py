"""The labelling configuration of a Label Studio project: the control that labels texts.

https://labelstud.io/tags: `<Choices>` and `<Taxonomy>` on a `<Text>`. Names of tags and attributes
are read in any case, as Label Studio's editor does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from xml.etree.ElementTree import Element, ParseError, fromstring

from longtail.models.errors import RequestError

ControlKind: TypeAlias = Literal["choices", "taxonomy"]
THRESHOLD, NUM_LABELS, SCORER = "model_score_threshold", "model_k", "model_scorer"
"""Attributes of a control that say what to predict; Label Studio passes them on."""
_CONTROL_TAGS = ("choices", "taxonomy")
_DEFAULT_K = 5
_MAX_DEPTH = 50
_MAX_CHARACTERS = 2**20
_MAX_SIGNS = 60_000
"""Most `<` and `=` of a configuration, which bound the tags and attributes to be made of it."""
_MAX_TEMPLATE_CHARACTERS = 10_000
_MAX_VARIABLES = 100
_VARIABLE = re.compile(r"\$([\w.]+)")


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a control.

    Attributes:
        path: What Label Studio stores: the aliases, else values, from the first level to this one.
        value: What people read.
        has_more: Whether choices stand below it.
    """

    path: tuple[str, ...]
    value: str
    has_more: bool


@dataclass(frozen=True, slots=True)
class Control:
    """A tag by which people label texts.

    Attributes:
        kind: Its tag.
        name: Its name.
        to_name: Name of the tag that shows the text.
        template: Where the text lies in a task: `$text`.
        choices: Those written in the configuration; empty where they are asked for at `apiUrl`.
        most: Labels that may be chosen; None: any number.
        k: Labels to predict.
        threshold: Least probability of a predicted label; None: any.
        scorer: That predicts; None: the model's default.
    """

    kind: ControlKind
    name: str
    to_name: str
    template: str
    choices: tuple[Choice, ...]
    most: int | None
    k: int
    threshold: float | None
    scorer: str | None

    def text_of(self, data: Mapping[str, Any], max_characters: int) -> str:
        """Return the text of a task.

        Args:
            data: The data of the task.
            max_characters: Most characters of the text; longer ones are not built.

        Raises:
            RequestError: A field is missing or no text, or the text is too long.
        """
        pieces = _VARIABLE.split(self.template)  # every second one is the name of a field
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
        """Return the texts of tasks.

        Args:
            tasks: The data of each task.
            max_characters: Most characters of one text.
            max_in_all: Most characters of all of them.

        Raises:
            RequestError: As `text_of` does, or the texts are too long in all.
        """
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


@lru_cache(maxsize=8)
def controls_of(config: str) -> tuple[Control, ...]:
    """Return the controls on texts, in their order.

    Raises:
        RequestError: It can't be read, has no such control, or one that can't be used.
    """
    elements = list(_elements(_parsed(config)))
    texts = {_attributes(each).get("name", ""): each for each in elements if _tag(each) == "text"}
    controls = tuple(
        _control(each, texts)
        for each in elements
        if _tag(each) in _CONTROL_TAGS and _attributes(each).get("toname") in texts
    )
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
        return fromstring(config)  # noqa: S314  # without declarations there are no entities
    except (ParseError, ValueError) as error:
        raise RequestError(f"label_config: it is not XML ({error})") from error


def _elements(root: Element, depth: int = 0) -> Iterator[Element]:
    if depth > _MAX_DEPTH:
        raise RequestError(f"label_config: tags stand more than {_MAX_DEPTH} deep; expected fewer")
    for each in root:
        yield each
        yield from _elements(each, depth + 1)


def _control(element: Element, texts: Mapping[str, Element]) -> Control:
    attributes = _attributes(element)
    name, to_name = attributes.get("name", ""), attributes["toname"]
    kind: ControlKind = "choices" if _tag(element) == "choices" else "taxonomy"
    is_remote = kind == "taxonomy" and "apiurl" in attributes
    most = _number(attributes, name, "maxusages") if kind == "taxonomy" else None
    if kind == "choices":
        if "value" in attributes:
            raise RequestError(
                f"label_config: <Choices name={name!r}> takes its choices from the task; write "
                "them into the configuration, or use <Taxonomy> with apiUrl"
            )
        most = None if attributes.get("choice", "single").startswith("multiple") else 1
    return Control(
        kind=kind,
        name=name,
        to_name=to_name,
        template=_template(to_name, _attributes(texts[to_name])),
        choices=() if is_remote else tuple(_choices(element, name, kind)),
        most=most,
        k=_number(attributes, name, NUM_LABELS) or _DEFAULT_K,
        threshold=_share(attributes, name, THRESHOLD),
        scorer=attributes.get(SCORER) or None,
    )


def _template(name: str, attributes: Mapping[str, str]) -> str:
    if attributes.get("valuetype", "text") != "text":
        raise RequestError(
            f"label_config: <Text name={name!r}> shows what lies at a URL, which is not fetched; "
            "put the text itself into the tasks"
        )
    template = attributes.get("value", "")
    num_variables = len(_VARIABLE.findall(template))
    if len(template) > _MAX_TEMPLATE_CHARACTERS or num_variables > _MAX_VARIABLES:
        raise RequestError(
            f"label_config: the value of <Text name={name!r}> has {len(template)} characters and "
            f"{num_variables} fields; expected at most {_MAX_TEMPLATE_CHARACTERS} and "
            f"{_MAX_VARIABLES}"
        )
    if not num_variables:
        raise RequestError(
            f"label_config: <Text name={name!r}> has the value {template[:100]!r}; expected a "
            "field of the task, such as '$text'"
        )
    return template


def _choices(
    element: Element, control: str, kind: ControlKind, above: tuple[str, ...] = (), depth: int = 0
) -> Iterator[Choice]:
    for each in element:
        if _tag(each) in _CONTROL_TAGS:
            raise RequestError(
                f"label_config: another control stands inside of control {control[:100]!r}; put "
                "it beside"
            )
        if _tag(each) != "choice":
            yield from _choices(each, control, kind, above)
            continue
        attributes = _attributes(each)
        value = attributes.get("value", "")
        path = (*above, attributes.get("alias") or value)
        below = tuple(_choices(each, control, kind, path, depth + 1))
        if below and kind == "choices":
            raise RequestError(
                f"label_config: choice {value[:100]!r} of <Choices name={control!r}> has choices "
                "below it; use <Taxonomy> for that"
            )
        yield Choice(path, value, has_more=bool(below))
        yield from below


def _number(attributes: Mapping[str, str], control: str, name: str) -> int | None:
    """Return an attribute that is a number from 1; None where there is none.

    Raises:
        RequestError: It is something else.
    """
    value = attributes.get(name)
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value)):
        raise RequestError(
            f"label_config: control {control!r} has {name}={value[:40]!r}; expected a number from 1"
        )
    return int(value)


def _share(attributes: Mapping[str, str], control: str, name: str) -> float | None:
    value = attributes.get(name)
    if not value:
        return None
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise RequestError(
            f"label_config: control {control!r} has {name}={value[:40]!r}; expected a number from "
            "0 to 1"
        )
    return share


def _field(data: Mapping[str, Any], name: str) -> str:
    value: Any = data
    for step in name.rstrip(".").split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if not isinstance(value, str):
        raise RequestError(
            f"data: the task has no text in the field {name[:100]!r}, which <Text> shows; give it"
        )
    return value


def _tag(element: Element) -> str:
    return element.tag.lower()


def _attributes(element: Element) -> dict[str, str]:
    return {name.lower(): value for name, value in element.attrib.items()}
