"""What only a server can do: stop, lose connections, hold locks, and acknowledge too early."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest

from service.errors import FeedbackStoreError
from service.feedback.store import FeedbackStore

sqlalchemy = pytest.importorskip("sqlalchemy")


@pytest.fixture
def beside(postgresql):
    """Executes a statement over a connection of another program to the same tables.

    Yields:
        What does so.
    """
    engine = sqlalchemy.create_engine(postgresql, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield lambda statement: connection.execute(sqlalchemy.text(statement))
    engine.dispose()


@contextmanager
def losing_the_answer_to_a_commit(url):
    """Yields a URL of the same database: of the first commit over it, no answer comes back."""
    parsed = sqlalchemy.make_url(url)
    listener = socket.create_server(("127.0.0.1", 0))
    is_committing, is_lost = threading.Event(), threading.Event()

    def ask(client, server):
        while data := client.recv(65_536):
            if b"COMMIT\0" in data:
                is_committing.set()
            server.sendall(data)

    def answer(client, server):
        with client, server:
            while data := server.recv(65_536):
                if is_committing.is_set() and not is_lost.is_set():
                    is_lost.set()
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)

    def serve():
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection((parsed.host, parsed.port or 5432))
            for pump in (ask, answer):
                threading.Thread(target=pump, args=(client, server), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    port = listener.getsockname()[1]
    yield parsed.set(host="127.0.0.1", port=port).render_as_string(hide_password=False), is_lost
    listener.close()


def test_connections_that_the_server_ends_are_opened_again(store_of_postgresql, beside, make_entry):
    store = store_of_postgresql
    store.append([[make_entry("a")]])
    for name in "bc":
        beside(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'longtail'"
        )
        assert store.append([[make_entry(name)]])[0][0].is_new
    assert [record.id for record in store.page(0, 9)] == ["a", "b", "c"]
    assert (
        beside("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'longtail'").scalar()
        == 1
    )


@pytest.fixture
def store_of_postgresql(postgresql):
    with FeedbackStore(postgresql, wait_s=0.5) as store:
        yield store


def test_a_commit_whose_answer_is_lost_is_not_done_twice(postgresql, make_entry):
    with FeedbackStore(postgresql) as store:
        store.append([[make_entry("a")]])
    with losing_the_answer_to_a_commit(postgresql) as (url, is_lost), FeedbackStore(url) as store:
        store._database._prepare = lambda _: None  # which commits, too
        ((receipt,),) = store.append([[make_entry("b")]])
        assert is_lost.is_set() and receipt.id == "b" and not receipt.is_new
        assert [record.id for record in store.page(0, 9)] == ["a", "b"]


def test_a_lock_of_another_process_is_told_and_passes(store_of_postgresql, beside, make_entry):
    store = store_of_postgresql
    store.append([[make_entry("a")]])
    beside("BEGIN")
    beside("UPDATE longtail_feedback_store SET num_writes = 0")
    with pytest.raises(FeedbackStoreError, match="locked by another process"):
        store.append([[make_entry("b")]])
    assert [record.id for record in store.page(0, 9)] == ["a"]  # reading goes on
    beside("COMMIT")
    assert store.append([[make_entry("b")]])[0][0].is_new


def test_what_is_acknowledged_is_on_the_disk_whatever_the_database_is_set_to(postgresql):
    with FeedbackStore(f"{postgresql}%20-csynchronous_commit%3Doff") as store:
        shown = store._database.write(
            lambda records: records._connection.fetch("SHOW synchronous_commit", {})
        )
    assert shown == [("on",)]


def test_a_wrong_password_and_a_missing_database_are_told_by_the_driver(postgresql):
    url = sqlalchemy.make_url(postgresql)
    for wrong, words in (
        (url.set(database="no-such-database"), 'database "no-such-database" does not exist'),
        (url.set(username="nobody", password="hunter2"), '"nobody"'),  # noqa: S106
    ):
        place = wrong.render_as_string(hide_password=False)
        with FeedbackStore(place) as store, pytest.raises(FeedbackStoreError) as caught:
            store.page(0, 1)
        assert "can't be reached, or its database refuses the user" in str(caught.value)
        assert words in caught.value.__notes__[0] and "hunter2" not in caught.value.__notes__[0]


def test_a_user_who_may_only_read_reads(postgresql, make_entry):
    with FeedbackStore(postgresql) as store:
        store.append([[make_entry("a")]])
    with FeedbackStore(f"{postgresql}%20-cdefault_transaction_read_only%3Don") as store:
        assert [record.id for record in store.page(0, 9)] == ["a"]
        with pytest.raises(FeedbackStoreError, match="read-only, or the user may not write"):
            store.append([[make_entry("b")]])
