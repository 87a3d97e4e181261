"""A series of entries, of which the last counts, whatever order they come in: by an oracle."""

import random

from longtail.service.feedback.store import FILE_NAME, FeedbackStore

SERIES = "studio/1/"
SECRET = "what was taken back, and nobody may find again"  # noqa: S105


def live(store):
    return [record.id for record in store.page(0, 1000) if "deleted_at" not in record.content]


def put(store, make_entry, moment, *, series=SERIES, is_empty=False):
    name = f"{series}{moment}"
    return store.replace(series, name, None if is_empty else make_entry(name, f"text {moment}"))


def test_whatever_the_order_the_last_one_counts(store, make_entry):
    draws = random.Random(0)  # noqa: S311
    for number in range(20):
        moments = [draws.randint(10, 20) for _ in range(8)]
        empty = {moment: draws.random() < 0.3 for moment in moments}
        series = f"studio/{number}/"
        latest = 0
        for moment in moments:
            is_new = put(store, make_entry, moment, series=series, is_empty=empty[moment])
            assert is_new == (moment > latest)
            latest = max(latest, moment)
            kept = [name for name in live(store) if name.startswith(series)]
            assert kept == ([] if empty[latest] else [f"{series}{latest}"])


def test_an_entry_that_gave_way_leaves_no_bytes(make_entry, tmp_path):
    store = FeedbackStore(tmp_path / "store")
    store.replace(SERIES, f"{SERIES}1", make_entry(f"{SERIES}1", SECRET))
    files = [tmp_path / "store" / name for name in (FILE_NAME, f"{FILE_NAME}-wal")]
    assert any(SECRET.encode() in file.read_bytes() for file in files if file.exists())
    put(store, make_entry, 2)
    assert not any(SECRET.encode() in file.read_bytes() for file in files if file.exists())
    store.close()
