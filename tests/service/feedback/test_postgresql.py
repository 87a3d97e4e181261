"""What only a server can do: stop, lose connections, hold locks, and acknowledge too early."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from longtail.service.errors import FeedbackStoreError
from longtail.service.feedback.store import FeedbackStore

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


class LossyProxy:
    """Stands before a server: of the first commit that it passes on, no answer comes back."""

    def __init__(self, url):
        self._server = sqlalchemy.make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_committing = threading.Event()
        self.is_lost = threading.Event()

    def __enter__(self):
        self._start(self._serve)
        return self

    def __exit__(self, *_):
        self._listener.close()

    @property
    def url(self):
        there = self._server.set(host="127.0.0.1", port=self._listener.getsockname()[1])
        return there.render_as_string(hide_password=False)

    def _start(self, work, *sockets):
        threading.Thread(target=work, args=sockets, daemon=True).start()

    def _serve(self):
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                address = (self._server.host, self._server.port or 5432)
                server = socket.create_connection(address)
                self._start(self._ask, client, server)
                self._start(self._answer, client, server)

    def _ask(self, client, server):
        with suppress(OSError):  # the other thread closed them
            while data := client.recv(65_536):
                if b"COMMIT\0" in data:
                    self._is_committing.set()
                server.sendall(data)

    def _answer(self, client, server):
        with suppress(OSError), client, server:
            while data := server.recv(65_536):
                if self._is_committing.is_set() and not self.is_lost.is_set():
                    self.is_lost.set()
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)


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
    with LossyProxy(postgresql) as proxy, FeedbackStore(proxy.url) as store:
        store._database._prepare = lambda _: None  # which commits, too
        ((receipt,),) = store.append([[make_entry("b")]])
        assert proxy.is_lost.is_set() and receipt.id == "b" and not receipt.is_new
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
        assert "can't be reached, or its server refuses the user" in str(caught.value)
        assert words in caught.value.__notes__[0] and "hunter2" not in caught.value.__notes__[0]


def test_a_user_who_may_only_read_reads(postgresql, make_entry):
    with FeedbackStore(postgresql) as store:
        store.append([[make_entry("a")]])
    with FeedbackStore(f"{postgresql}%20-cdefault_transaction_read_only%3Don") as store:
        assert [record.id for record in store.page(0, 9)] == ["a"]
        with pytest.raises(FeedbackStoreError, match="read-only, or the user may not write"):
            store.append([[make_entry("b")]])
