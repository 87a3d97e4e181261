"""Validation errors in our words: what came, and what was expected."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator

from longtail.models.files.typed_json import problem_in_words


class Inner(BaseModel):
    x: int


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    count: int = Field(1, ge=1, le=9)
    share: float = Field(0.5, gt=0, lt=1)
    finite: FiniteFloat = 0
    name: str = Field("name", min_length=2, max_length=5, pattern="^[a-z]+$")
    is_on: bool = True
    kind: Literal["one", "two"] = "one"
    items: Annotated[list[str], Field(min_length=1, max_length=2)] = ["a"]
    table: dict[str, int] = {}
    inner: Inner = Inner(x=1)
    even: int = 0

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd; give an even one")
        return value


def words_of(content: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Shape.model_validate(content)
    (problem,) = caught.value.errors()
    return problem_in_words(problem)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"count": "5"}, 'got "5"; expected a whole number'),
        ({"count": "a secret"}, "got a string of length 8; expected a whole number"),
        ({"count": 0}, "got 0; expected at least 1"),
        ({"finite": float("inf")}, "got Infinity; expected a finite number"),
        ({"name": None}, "got null; expected a string"),
        ({"is_on": 1}, "got 1; expected true or false"),
        ({"kind": "three"}, "got \"three\"; expected 'one' or 'two'"),
        ({"items": []}, "got a list of length 0; expected 1 or more items"),
        ({"inner": {}}, "missing; add it"),
        ({"cuont": 1}, "unknown; remove it, or correct its name"),
        ({"even": 3}, "3 is odd; give an even one"),
    ],
)
def test_a_problem_says_what_came_and_what_was_expected(content, words):
    assert words_of(content) == words
