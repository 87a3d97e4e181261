"""A database with a URL: what is told of one that fails, and what a lost connection does."""

from __future__ import annotations

import subprocess
import sys
import traceback

import pytest

from longtail.models.errors import ConfigError
from longtail.models.files.failures import explain
from longtail.service.errors import FeedbackStoreError
from longtail.service.feedback.store import FeedbackStore

sqlalchemy = pytest.importorskip("sqlalchemy")

PASSWORD = "hunter2"  # noqa: S105
NOWHERE = f"postgresql+psycopg://ada:{PASSWORD}@127.0.0.1:1/said"


@pytest.fixture
def url(tmp_path):
    return f"sqlite+pysqlite:///{tmp_path}/said.db"


@pytest.fixture
def execute(url):
    """Executes a statement beside the store, which must not be open."""

    def run(statement):
        engine = sqlalchemy.create_engine(url)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(statement))
        engine.dispose()

    return run


def failed(error):
    """Return the error as the store tells it, raised where others were handled."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"nonsense://ada:{PASSWORD}@db/said", "a kind of database that SQLAlchemy does not know"),
        (f"postgresql://ada:{PASSWORD}@db:port/said", "can't be read as a URL; expected DIALECT"),
        (f"postgresql://ada:{PASSWORD}@db:{PASSWORD}/said", "can't be read as a URL"),
        (f"mysql+pymysql://ada:{PASSWORD}@db/said", "needs the driver 'pymysql'"),
        (f"postgresql+asyncpg://ada:{PASSWORD}@db/said", "names a driver for asyncio"),
        ("sqlite+pysqlite://", "is a database in memory, which keeps nothing"),
    ],
)
def test_a_url_that_cannot_work_is_refused_before_it_is_used(url, words, monkeypatch):
    pytest.importorskip("psycopg")
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(ConfigError, match=words) as caught:
        FeedbackStore(url)
    assert PASSWORD not in failed(caught.value)


def test_without_sqlalchemy_it_is_named_and_folders_go_on(tmp_path):
    script = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from longtail.service.feedback.store import FeedbackStore\n"
        f"print(FeedbackStore({str(tmp_path / 'f')!r}).page(0, 1))\n"
        f"FeedbackStore({NOWHERE!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n"
    assert "ConfigError" in done.stderr and "pip install 'longtail[database]'" in done.stderr


def test_a_database_that_is_not_there_is_told_to_operators_by_its_driver():
    pytest.importorskip("psycopg")
    with FeedbackStore(NOWHERE) as store, pytest.raises(FeedbackStoreError) as caught:
        store.page(0, 1)
    error = caught.value
    assert str(error).startswith(
        "the feedback store can't be reached, or its server refuses the user, the password or the "
    )
    assert "the driver says: " in explain(error).message and "refused" in explain(error).message
    assert PASSWORD not in failed(error)


def test_tables_of_another_longtail_are_left_alone(url, execute, make_entry):
    with FeedbackStore(url) as store:
        store.append([[make_entry("a")]])
    execute("UPDATE longtail_feedback_store SET schema_version = 7")
    with (
        FeedbackStore(url) as store,
        pytest.raises(FeedbackStoreError, match=r"tables of version 7, and this .* version 1"),
    ):
        store.append([[make_entry("b")]])
    execute("UPDATE longtail_feedback_store SET schema_version = 1")
    with FeedbackStore(url) as store:
        assert store.counts().entries == 1


def test_tables_that_vanish_are_told_and_made_anew_at_the_next_use(url, execute, make_entry):
    with FeedbackStore(url) as store:
        store.append([[make_entry("a")]])
        execute("DROP TABLE longtail_feedback")
        with pytest.raises(FeedbackStoreError, match="no such table"):
            store.append([[make_entry("b")]])
        assert store.append([[make_entry("b")]])[0][0].is_new


@pytest.mark.parametrize("num_lost", [1, 2])
def test_a_lost_connection_is_opened_once_more(url, make_entry, num_lost):
    store = FeedbackStore(url)
    store.append([[make_entry("a")]])
    left = num_lost

    def lose(connection):
        nonlocal left
        if left:
            left -= 1
            connection.connection.driver_connection.close()

    sqlalchemy.event.listen(store._database._engine, "begin", lose)
    if num_lost == 1:
        assert store.append([[make_entry("b")]])[0][0].is_new
    else:
        with pytest.raises(FeedbackStoreError):
            store.append([[make_entry("b")]])
        assert store.append([[make_entry("b")]])[0][0].is_new
    assert [record.id for record in store.page(0, 9)] == ["a", "b"]
    store.close()


class DriverError(Exception):
    """An error of a driver with an SQLSTATE."""

    def __init__(self, state, *words):
        super().__init__(*words)
        self.sqlstate = state


@pytest.mark.parametrize(
    ("cause", "is_lost", "words", "is_retried"),
    [
        (DriverError("53100"), False, "is full", False),
        (DriverError("55P03"), False, "is locked by another process", False),
        (DriverError("40P01"), False, "is locked by another process", True),
        (DriverError("57014"), False, "took more than 30 s", False),
        (DriverError("57P01"), True, "can't be reached", True),
        (DriverError("57P03"), False, "can't be reached", False),
        (DriverError("28P01"), False, "refuses the user or the password", False),
        (DriverError("3D000"), False, "there is no such database", False),
        (DriverError("42501"), False, "read-only, or the user may not write", False),
        (DriverError("25006"), False, "read-only, or the user may not write", False),
        (DriverError("42P01"), False, "lost its tables", False),
        (DriverError("XX001"), False, "is damaged", False),
        (DriverError("53300"), False, "too many connections", False),
        (DriverError("P0001"), False, "can't be used (DriverError, code P0001)", False),
        (DriverError(None, 1205, "Lock wait timeout exceeded"), False, "is locked", False),
        (DriverError(None, 1114, "The table is full"), False, "is full", False),
        (DriverError(None, "connection reset"), True, "can't be reached", True),
    ],
)
def test_failures_have_words_and_some_are_tried_again(cause, is_lost, words, is_retried):
    from longtail.service.feedback.sql_failures import is_worth_a_retry, words_of

    error = sqlalchemy.exc.DBAPIError("SELECT 1", {}, cause, connection_invalidated=is_lost)
    assert words in words_of(error)
    assert is_worth_a_retry(error) == is_retried


def test_the_drivers_words_come_without_secrets():
    from longtail.service.feedback.sql_failures import driver_says

    url = sqlalchemy.make_url("postgresql://ada:p%40ss%2F@db/said?sslpassword=hidden")
    cause = DriverError(None, "bad 'p@ss/', 'p%40ss%2F', p%40ss/ or hidden\nsecond line")
    told = driver_says(sqlalchemy.exc.DBAPIError("", {}, cause), url)
    assert told == "the driver says: bad '***', '***', *** or ***"
