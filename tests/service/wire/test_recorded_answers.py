"""The bytes of answers, as clients have got them since 0.1: `recorded-answers.txt`."""

import re
from dataclasses import replace
from pathlib import Path

from longtail.models.results import (
    UNLIKE_TRAINING,
    UNRELIABLE_PROBABILITIES,
    AnswerWarning,
    Familiarity,
    LabelExplanation,
    Prediction,
    ScoredLabel,
)
from longtail.service.schemas.requests import BatchLine
from longtail.service.wire.lines import result_line

RECORDED = Path(__file__).with_name("recorded-answers.txt")
OLIVE = ScoredLabel("1264", "Olivenöl \N{OLIVE}", 2.25, 0.1 + 0.2, index=0)
OIL = ScoredLabel('a"b\\c', "oil\u2028", -1e-17, None, index=7)
PLAIN = Prediction(
    labels=(OLIVE, OIL), num_tokens=2, truncated=True, exact=True, correction="prior",
    num_text_tokens=3, known_tokens=1,
)  # fmt: skip
UNKNOWN = LabelExplanation(
    tokens=None, keywords=(), nearest=(), training_count=0, scores=(), name=None, documents=(),
    blend=(),
)  # fmt: skip
WARNINGS = (
    AnswerWarning(UNRELIABLE_PROBABILITIES, "often too high", ("1264",)),
    AnswerWarning(UNLIKE_TRAINING, "unlike", ()),
)
ACCEPTED = (replace(OLIVE, accepted=True), replace(OIL, accepted=False))
REJECTED = (replace(OLIVE, accepted=False),)
ANSWERS = {
    "plain": PLAIN,
    "without labels": replace(PLAIN, labels=()),
    "warnings": replace(PLAIN, warnings=WARNINGS),
    "familiar": replace(PLAIN, familiarity=Familiarity(3, 2, 0.5)),
    "unknown label": replace(PLAIN, labels=(replace(OLIVE, explanation=UNKNOWN),)),
    "accepted": replace(PLAIN, labels=ACCEPTED, abstained=False),
    "abstained": replace(PLAIN, labels=REJECTED, abstained=True, abstained_because="no-known-word"),
    "abstained without labels": replace(
        PLAIN, labels=(), abstained=True, abstained_because="below-threshold"
    ),
}
NDJSON = {"Content-Type": "application/x-ndjson"}
LINES = (BatchLine(text="x", tail_dial=1), BatchLine(text="x", id="ä", aim="propensity"))
REQUESTS = (
    ("/v1/predict", {"text": "olive oil unknown", "k": 2}),
    ("/v1/predict", {"texts": ["a", "b c"], "k": 1, "explain": True, "aim": "propensity"}),
    ("/v1/candidates", {"text": "olive oil", "k": 2}),
    ("/v1/labels?limit=2", None),
    ("/v1/labels/L1", None),
)


def answers(client):
    """Yield what was asked, and the bytes of the answer."""
    for name, prediction in ANSWERS.items():
        for line in LINES:
            yield name, result_line(4, line, 2, "sparse", prediction).rstrip(b"\n")
    for path, body in REQUESTS:
        answer = client.get(path) if body is None else client.post(path, json=body)
        yield path, re.sub(rb"[0-9a-f]{64}", b"DIGEST", answer.content)
    lines = b'{"text": "a", "id": 1, "k": 1}\n{"text": "b", "explain": true, "k": 1}\n{}'
    for line in client.post("/v1/batch", content=lines, headers=NDJSON).content.splitlines():
        yield "/v1/batch", line


def test_answers_are_byte_for_byte_those_that_were_recorded(client):
    found = [f"{name}: {content.decode()}" for name, content in answers(client)]
    assert found == RECORDED.read_text(encoding="utf-8").split("\n")[:-1]
