"""Which training documents are held out where a corpus has no dev split."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.held_out import held_out_rows, with_held_out_dev

TEXTS = st.lists(st.text("abé\ud800", max_size=3), max_size=60)
SHARES = st.floats(0, 1)


def write(folder: Path, documents: list[dict[str, Any]]) -> Dataset:
    lines = (json.dumps(document) + "\n" for document in documents)
    (folder / "train.jsonl").write_text("".join(lines))
    return open_dataset(folder)


def documents(count: int) -> list[dict[str, Any]]:
    """Every fourth text repeats the one before; every fifth document has no label."""
    return [
        {
            "id": f"d{row}",
            "text": f"text {row - (row % 4 == 3)}",
            "labels": ["all", f"label {row % 7}"] if row % 5 else [],
        }
        for row in range(count)
    ]


@given(TEXTS, SHARES, st.integers(0, 20))
def test_equal_texts_are_on_one_side_and_neither_bound_is_exceeded(texts, share, most):
    chosen = held_out_rows(texts, share, most).tolist()
    held_out = {text for text, is_chosen in zip(texts, chosen, strict=True) if is_chosen}
    assert chosen == [text in held_out for text in texts]
    assert sum(chosen) <= min(share * len(texts), most)


def test_the_parts_have_all_documents_once_in_their_order(tmp_path):
    dataset = write(tmp_path, documents(400))
    view = with_held_out_dev(dataset, 0.1)
    parts = {name: list(view.split(name)) for name in view.split_names}
    assert list(parts) == ["train", "dev"] and len(parts["dev"]) == 40
    whole = list(dataset.split("train"))
    assert sorted(parts["train"] + parts["dev"], key=whole.index) == whole
    assert all(part == sorted(part, key=whole.index) for part in parts.values())
    assert not {x.text for x in parts["dev"]} & {x.text for x in parts["train"]}
