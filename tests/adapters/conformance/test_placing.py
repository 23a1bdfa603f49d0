"""Saved transcripts are put where the client finds them, and nothing of the client's is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from clients import Client

from agentsdir.formats.errors import AgentsdirError, Invalid, UnsafePath


@pytest.mark.feature("B-06")
def test_a_session_is_placed_with_all_that_is_its_own(client: Client) -> None:
    """To the byte, below the folder of the new working directory; the transcript comes last."""
    files = client.save(client.whole)
    written = client.place(files)
    assert written[-1] == client.main
    found = {path.relative_to(client.project).as_posix(): path.read_bytes() for path in written}
    assert found == client.whole
    assert client.place(files) == []


def test_what_is_placed_is_private(client: Client) -> None:
    """Folders are 0700 and files 0600, and no temporary file stays."""
    client.place(client.save(client.whole))
    for path in client.home.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
        assert not path.name.endswith(".tmp")


def test_the_clients_own_variable_says_where(client: Client, tmp_path: Path) -> None:
    """It moves the store; what is set for the program wins."""
    elsewhere = {client.variable: str(tmp_path / "config")}
    variables = {client.variable: "/nowhere", "HOME": "/nowhere"}
    saved = client.save({client.transcript: client.talk})
    (path,) = client.place(saved, variables=variables, environment=elsewhere)
    below = client.main.relative_to(client.storage)
    assert path == client.storage_at(tmp_path / "config") / below


@pytest.mark.parametrize("end", ["whole", "torn"])
def test_a_last_line_is_ended(client: Client, end: str) -> None:
    """An LF follows a last line that lacks one: the client would glue its own to it."""
    data = client.talk[:-1] if end == "whole" else client.talk + client.torn
    saved = client.save({client.transcript: data})
    client.place(saved)
    assert client.main.read_bytes() == data + b"\n"
    assert client.place(saved) == []


@pytest.mark.cases("grown")
def test_a_session_that_has_gone_on_is_left(client: Client, case: tuple[str, bytes, bytes]) -> None:
    """It is the client's to go on with."""
    name, saved, there = case
    path = client.stand(there, name)
    assert client.place(client.save({name: saved})) == []
    assert path.read_bytes() == there


@pytest.mark.cases("others")
def test_other_bytes_are_never_overwritten(
    client: Client, case: tuple[dict[str, bytes], str, bytes]
) -> None:
    """And nothing at all is written then."""
    saved, name, there = case
    path = client.stand(there, name)
    before = sorted(client.home.rglob("*"))
    with pytest.raises(Invalid) as caught:
        client.place(client.save({client.output: b"x", **saved}))
    assert caught.value.kind == "transcript-differs"
    assert (path.read_bytes(), sorted(client.home.rglob("*"))) == (there, before)


def test_a_file_that_was_just_compared_is_not_read_again(client: Client) -> None:
    """The one beside its saved copy; the same file is no proof for another copy."""
    saved = client.save({client.transcript: client.talk})
    (name,) = saved
    client.stand(b"other bytes, so that a look would show")
    spec = client.spec(saved)
    known = spec._replace(compared=frozenset({(name, client.main)}))
    assert client.provider.materialize(known) == []
    for wrong in ((f"{name}-b", client.main), (name, client.main.with_name("b"))):
        with pytest.raises(Invalid):
            client.provider.materialize(spec._replace(compared=frozenset({wrong})))


def test_an_empty_file_gives_way(client: Client) -> None:
    """It says that nothing is here."""
    client.stand(b"")
    assert client.place(client.save({client.transcript: client.talk})) == [client.main]
    assert client.main.read_bytes() == client.talk


def test_the_longest_saved_copy_is_the_latest(client: Client) -> None:
    """A session that was placed in two folders in its life is saved under both."""
    saved = client.save({client.transcript: client.talk})
    (name,) = saved
    longer = client.talk + client.more
    client.place({**saved, name.replace(client.elsewhere, f"{client.elsewhere}-b"): longer})
    assert client.main.read_bytes() == longer


@pytest.mark.cases("alien")
def test_only_the_sessions_own_files_have_a_place(client: Client, case: tuple[str, bytes]) -> None:
    """What an imported bundle calls a transcript cannot become anything else of the client's."""
    name, data = case
    saved = client.save({client.transcript: client.talk})
    assert client.place({**saved, name: data}) == [client.main]
    assert {path for path in client.home.rglob("*") if path.is_file()} == {
        client.main, *client.marks,
    }  # fmt: skip


@pytest.mark.cases("no_ids")
def test_only_an_id_names_a_session(client: Client, case: str, tmp_path: Path) -> None:
    """Anything else the client would not take is not placed."""
    named = type(client)(tmp_path / "named", case)
    assert named.place(named.save({named.transcript: named.session(case)})) == []
    assert not named.storage.exists()


@pytest.mark.parametrize("what", ["a folder", "a file", "nothing"])
def test_nothing_is_written_behind_a_link(client: Client, tmp_path: Path, what: str) -> None:
    """A link in the store leads nowhere: what is outside stays as it was."""
    for number in range(len(client.way) if what == "a folder" else 1):
        fresh = type(client)(tmp_path / str(number))
        link = fresh.way[number] if what == "a folder" else fresh.main
        outside = tmp_path / f"outside {number}"
        outside.mkdir()
        (outside / "file").write_bytes(client.talk)
        link.parent.mkdir(parents=True)
        link.symlink_to({"a folder": outside, "a file": outside / "file"}.get(what, outside / "x"))
        with pytest.raises(UnsafePath):
            fresh.place(fresh.save({fresh.transcript: client.talk}))
        assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [
            ("file", client.talk)
        ]


def test_a_fifo_in_place_is_refused(client: Client) -> None:
    """It is not opened for good."""
    client.main.parent.mkdir(parents=True)
    os.mkfifo(client.main)
    with pytest.raises(UnsafePath):
        client.place(client.save({client.transcript: client.talk}))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(client: Client) -> None:
    """Who owns it could read the session, or change it."""
    client.project.mkdir(parents=True)
    os.chown(client.project, 12345, 12345)
    with pytest.raises(UnsafePath, match="another user"):
        client.place(client.save({client.transcript: client.talk}))


def test_a_store_that_cannot_be_made_is_an_error_of_ours(client: Client) -> None:
    """A file where the store should be is named."""
    client.storage.write_bytes(b"")
    with pytest.raises(AgentsdirError):
        client.place(client.save({client.transcript: client.talk}))
    assert client.storage.read_bytes() == b""


def test_an_agent_without_a_transcript_has_nothing_to_place(client: Client) -> None:
    """The first turn makes it."""
    assert client.place({}) == []
    assert client.place(client.save({client.child: client.talk, client.output: b"x"})) == []
    assert not client.storage.exists()
