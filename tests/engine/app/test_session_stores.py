"""The stores of snapshots: what all must do, and what is particular to files and to SQLite."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from store_conformance import IDS, StoreConformance

from agentsdir.engine.app.session_store import FileSessionStore
from agentsdir.engine.app.sqlite_store import SqliteSessionStore
from agentsdir.formats.errors import Busy, Invalid, NotRecorded, UnsafePath

pytestmark = pytest.mark.feature("A-09")


class TestFiles(StoreConformance):
    """A folder of files."""

    SOURCE = (
        "from agentsdir.engine.app.session_store import FileSessionStore\n"
        "store = FileSessionStore(folder + '/sessions')"
    )


class TestSqlite(StoreConformance):
    """A table in a database."""

    SOURCE = (
        "from agentsdir.engine.app.sqlite_store import SqliteSessionStore\n"
        "store = SqliteSessionStore(folder + '/sessions.db')"
    )


class TestSqliteOfAProgram(StoreConformance):
    """A table in a database that is there, has tables of its own, and a write-ahead log."""

    SOURCE = (
        "import sqlite3\n"
        "from contextlib import closing\n"
        "from agentsdir.engine.app.sqlite_store import SqliteSessionStore\n"
        "path = folder + '/own.db'\n"
        "with closing(sqlite3.connect(path, timeout=30)) as own:\n"
        "    own.execute('PRAGMA journal_mode = WAL')\n"
        "    own.execute('CREATE TABLE IF NOT EXISTS sessions (mine TEXT)')\n"
        "store = SqliteSessionStore(path)"
    )

    def test_a_new_store_is_empty(self, tmp_path: Path) -> None:
        """Here the database is there before."""
        assert self.opened(tmp_path).list() == []


# Files.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where a store of files is to be made."""
    return tmp_path / "a" / "sessions"


def test_files_are_private_and_can_be_read_by_people(folder: Path) -> None:
    """Whatever the umask; the name says the id, and the content is one object."""
    before = os.umask(0)
    try:
        FileSessionStore(folder).save("user-123", {"tick": 1})
        FileSessionStore(folder, durable=False).save("Ada B.", {"tick": 2})
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        "user-123.json": 0o600,
        "%41da%20%42%2e.json": 0o600,
    }
    assert (folder / "user-123.json").read_bytes() == (b'{"id":"user-123","snapshot":{"tick":1}}\n')


def test_a_long_name_ends_in_a_digest(folder: Path) -> None:
    """No file system takes it otherwise; its id is read from the file."""
    store = FileSessionStore(folder)
    for session_id in IDS:
        store.save(session_id, {})
    assert max(len(path.name) for path in folder.iterdir()) <= 205
    assert any("~" in path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b'{"id":"a","snapshot":{', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "it holds no snapshot"),
        (b'{"id":"a"}', "it holds no snapshot"),
        (b'{"id":"a","snapshot":[]}', "it holds no snapshot"),
        (b'{"id":"b","snapshot":{}}', "it is of another session, 'b'"),
    ],
)
def test_a_damaged_file_is_named_with_a_way_to_go_on(folder: Path, data: bytes, why: str) -> None:
    """It is there until it is deleted or saved anew; the others are not affected."""
    store = FileSessionStore(folder)
    store.save("a", {"tick": 1})
    store.save("other", {"tick": 1})
    path = folder / "a.json"
    path.write_bytes(data)
    with pytest.raises(Invalid) as raised:
        store.load("a")
    assert raised.value.kind == "bad-snapshot"
    assert str(path) in raised.value.message
    assert why in raised.value.message
    assert "delete the session" in str(raised.value.hint)
    assert store.has("a")
    assert store.list() == ["a", "other"]
    store.delete("a")
    assert store.list() == ["other"]
    path.write_bytes(data)
    store.save("a", {"tick": 2})
    assert store.load("a") == {"tick": 2}


def test_a_damaged_file_whose_name_is_no_id_is_named(folder: Path) -> None:
    """A list without it would be a lie."""
    store = FileSessionStore(folder)
    store.save("x" * 300, {})
    (path,) = folder.iterdir()
    for data in (b"", b"[]", b"{}", b'{"id":7}', b'{"id":""}'):
        path.write_bytes(data)
        with pytest.raises(Invalid) as raised:
            store.list()
        assert (raised.value.kind, str(path) in raised.value.message) == ("bad-snapshot", True)


def test_what_is_no_file_of_the_store_is_left_alone(folder: Path) -> None:
    """What a killed writer left, and what people put there."""
    store = FileSessionStore(folder)
    store.save("a", {})
    for name in (
        ".tmp-a.json-0123",
        "README",
        "Notes.json",
        "b.json.bak",
        "é.json",
        "%61.json",
        "%ff.json",
    ):
        (folder / name).write_bytes(b"mine")
    assert store.list() == ["a"]


def test_links_and_folders_are_not_followed(folder: Path, tmp_path: Path) -> None:
    """A snapshot takes the place of a link, and what it led to stays."""
    store = FileSessionStore(folder)
    store.save("other", {})
    outside = tmp_path / "outside"
    outside.write_bytes(b'{"id":"a","snapshot":{"secret":1}}')
    (folder / "a.json").symlink_to(outside)
    with pytest.raises(UnsafePath):
        store.load("a")
    store.save("a", {"tick": 1})
    assert b"secret" in outside.read_bytes()
    assert store.load("a") == {"tick": 1}
    (folder / "b.json").mkdir()
    with pytest.raises(NotRecorded):
        store.delete("b")
    with pytest.raises(NotRecorded):
        store.save("b", {})


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """By each call, with an error of this program."""
    (tmp_path / "file").write_bytes(b"")
    store = FileSessionStore(tmp_path / "file")
    with pytest.raises(NotRecorded):
        store.save("a", {})
    with pytest.raises(Invalid):
        store.load("a")
    with pytest.raises(Invalid):
        store.list()


# SQLite.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a database is to be made."""
    return tmp_path / "a" / "sessions.db"


def test_the_database_is_private_and_one_file(path: Path) -> None:
    """From the start, and no journal is left beside it."""
    before = os.umask(0)
    try:
        SqliteSessionStore(path).save("a", {})
    finally:
        os.umask(before)
    assert [one.name for one in path.parent.iterdir()] == ["sessions.db"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_database_that_another_process_writes_to_is_waited_for(path: Path) -> None:
    """As long as the store says; then the error names the file."""
    store = SqliteSessionStore(path, timeout=0.05)
    store.save("a", {"tick": 1})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for call in (
            lambda: store.save("a", {"tick": 2}),
            lambda: store.load("a"),
            store.list,
        ):
            with pytest.raises(Busy) as raised:
                call()
            assert str(path) in raised.value.message
        other.execute("COMMIT")
    assert store.load("a") == {"tick": 1}


@pytest.mark.parametrize("damage", ["garbage", "no table", "a view"])
def test_a_damaged_database_is_named_with_a_way_to_go_on(path: Path, damage: str) -> None:
    """By each call, with an error of this program."""
    path.parent.mkdir()
    if damage == "garbage":
        path.write_bytes(b"no database at all" * 100)
    else:
        with closing(sqlite3.connect(path)) as database:
            what = "TABLE agentsdir_sessions (other)"
            if damage == "a view":
                what = "VIEW agentsdir_sessions AS SELECT 1"
            database.execute(f"CREATE {what}")
    store = SqliteSessionStore(path)
    calls: list[Any] = [lambda: store.save("a", {})]
    if damage != "a view":  # in which there is nothing to read
        calls += [lambda: store.load("a"), lambda: store.has("a"), store.list]
    for call in calls:
        with pytest.raises(Invalid) as raised:
            call()
        assert raised.value.kind == "bad-snapshot"
        assert str(path) in raised.value.message
        assert raised.value.hint


@pytest.mark.parametrize("kept", [b"", b"{", "text", 7, orjson.dumps({"id": "b", "snapshot": {}})])
def test_a_damaged_row_is_named_and_the_others_are_not_affected(path: Path, kept: Any) -> None:
    """It is there until it is deleted or saved anew."""
    store = SqliteSessionStore(path)
    store.save("a", {"tick": 1})
    store.save("other", {"tick": 1})
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE agentsdir_sessions SET kept = ? WHERE id = 'a'", (kept,))
        database.commit()
    with pytest.raises(Invalid) as raised:
        store.load("a")
    assert raised.value.kind == "bad-snapshot"
    assert "row of session 'a'" in raised.value.message
    assert store.load("other") == {"tick": 1}
    store.save("a", {"tick": 2})
    assert store.load("a") == {"tick": 2}


def test_a_place_where_no_database_can_be_is_refused(tmp_path: Path) -> None:
    """A folder, or a path below a file."""
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path, tmp_path / "file" / "x.db"):
        with pytest.raises(NotRecorded):
            SqliteSessionStore(place).save("a", {})


def test_an_empty_file_is_a_database_without_sessions(path: Path) -> None:
    """As another process leaves it, that was killed when it had made the file."""
    path.parent.mkdir()
    path.touch()
    store = SqliteSessionStore(path)
    assert (store.list(), store.load("a"), store.has("a")) == ([], None, False)
    store.delete("a")
    store.save("a", {})
    assert store.list() == ["a"]


@pytest.mark.parametrize("name", [":memory:", "file:s.db?mode=memory", "file:s.db"])
def test_any_file_name_is_a_database_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also one that SQLite takes for something else, where a snapshot would be lost."""
    monkeypatch.chdir(tmp_path)
    SqliteSessionStore(name).save("a", {"tick": 1})
    assert SqliteSessionStore(name).load("a") == {"tick": 1}
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("session_id", [7, None, b"a"])
def test_a_row_whose_id_is_no_text_is_named(path: Path, session_id: Any) -> None:
    """Of a table that another program made."""
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE agentsdir_sessions (id, kept)")
        database.execute(
            "INSERT INTO agentsdir_sessions VALUES ('a', x''), (?, x'')", (session_id,)
        )
        database.commit()
    with pytest.raises(Invalid) as raised:
        SqliteSessionStore(path).list()
    assert raised.value.kind == "bad-snapshot"


@pytest.mark.parametrize("kind", [FileSessionStore, SqliteSessionStore])
def test_a_place_that_the_system_does_not_look_at_is_no_empty_store(
    tmp_path: Path, kind: type[FileSessionStore | SqliteSessionStore]
) -> None:
    """Such as one behind a folder that the user may not enter; here, a name that is too long."""
    store = kind(tmp_path / ("x" * 300))
    calls: list[Any] = [lambda: store.load("a"), lambda: store.has("a"), store.list]
    for call in calls:
        with pytest.raises(Invalid) as raised:
            call()
        assert raised.value.kind == "unreadable"
    with pytest.raises((Invalid, NotRecorded)):
        store.save("a", {})
