"""Keys: made, compared, and exchanged while the service runs."""

import hashlib
import hmac

import pytest

from longtail.models.errors import ConfigError
from longtail.service.http.api_keys import KeyRing, make_key


def test_a_made_key_is_let_in_by_its_entry_alone():
    key, entry = make_key("ops-1")
    assert entry == f"ops-1:{hashlib.sha256(key.encode()).hexdigest()}"
    ring = KeyRing("admin", entry)
    assert ring.name_of(key) == "ops-1"
    assert ring.name_of(key + "x") is ring.name_of("") is ring.name_of(entry) is None


def test_every_key_is_compared_in_constant_time(monkeypatch):
    compared = []

    def compare(one, other):
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    key, first = make_key("a")
    KeyRing("api", f"{first},{make_key('b')[1]}").name_of(key)
    assert len(compared) == 2
    assert all(len(each) == 64 for pair in compared for each in pair)


@pytest.mark.parametrize(
    "text", ["secret-key", "a:123", f"a b:{'0' * 64}", f"a:{'G' * 64}", f"a:{'0' * 64}x"]
)
def test_a_malformed_entry_stops_the_start_and_is_not_repeated(tmp_path, text):
    path = tmp_path / "keys"
    path.write_text(f"{make_key('a')[1]}\n{text}\n")
    for make in (
        lambda: KeyRing("api", f"{make_key('x')[1]},{text}"),
        lambda: KeyRing("api", path=path),
    ):
        with pytest.raises(ConfigError, match="entry 2 is not NAME:SHA256") as why:
            make()
        assert text not in str(why.value)


def test_files_and_entries_that_can_not_be_used_stop_the_start(tmp_path):
    with pytest.raises(ConfigError, match="LONGTAIL_API_KEYS: two entries have the name 'a'"):
        KeyRing("api", f"{make_key('a')[1]},{make_key('a')[1]}")
    with pytest.raises(ConfigError, match="can't be read"):
        KeyRing("api", path=tmp_path / "none")
    (tmp_path / "keys").touch()
    assert KeyRing("api", path=tmp_path / "keys").is_configured
    assert not KeyRing("api").is_configured


@pytest.fixture
def rotating(tmp_path):
    """A file with one key, the ring that reads it, and what replaces the file's content."""
    key, entry = make_key("old")
    path = tmp_path / "keys"
    path.write_text(entry)

    def replace(content):
        incoming = path.with_name("incoming")
        incoming.write_bytes(content)
        incoming.replace(path)

    return key, path, KeyRing("api", path=path), replace


def test_a_changed_file_lets_new_keys_in_and_old_ones_no_more(rotating):
    old, _, ring, replace = rotating
    new, entry = make_key("new")
    replace(entry.encode())
    assert (ring.name_of(new), ring.name_of(old)) == ("new", None)
    replace(b"")
    assert ring.name_of(new) is None


@pytest.mark.parametrize("content", [b"nonsense", b"\xff"])
def test_a_changed_file_that_cannot_be_read_leaves_the_keys_and_says_so_once(
    rotating, caplog, content
):
    old, _, ring, replace = rotating
    replace(content)
    assert [ring.name_of(old) for _ in range(3)] == ["old"] * 3
    assert caplog.text.count("the keys stay as they were") == 1
