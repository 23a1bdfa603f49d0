"""The client's own store: what is a session there, what a list shows of it, where an id is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clients import ID, OTHER, Client
from watching import read_so_far

from agentsdir.adapters.protocol import NativeSession

HEAD = 64 * 1024
TEBIBYTE = 1 << 40
THIRD = "00000003-0000-4000-8000-000000000003"


def locate(client: Client, native_id: str) -> list[Path]:
    """Return where the transcripts of an id are."""
    return client.reader.locate(client.storage, native_id)


def aged(path: Path, age: int) -> Path:
    """Say that a file was written some seconds before a moment."""
    os.utime(path, (0, 1_700_000_000 - age))
    return path


def test_a_list_says_what_the_files_say(client: Client) -> None:
    """From the transcript, and from what the client keeps beside it."""
    data = client.talk.replace(b'"hi"', rb'"fix the tests\n please"')
    path = aged(client.stand(data), 0)
    assert client.listed() == [
        NativeSession(
            id=ID,
            file=path,
            cwd=client.listed_cwd,
            title="fix the tests please",
            branch=client.branch,
            created="2026-01-02T03:04:05.678Z",
            modified="2023-11-14T22:13:20.000000Z",
            size=path.stat().st_size,
        )
    ]


@pytest.mark.cases("titles")
def test_a_session_is_called_what_it_is_about(client: Client, case: tuple[bytes, str]) -> None:
    """By the most telling title, else by the first thing that a person typed."""
    data, title = case
    client.stand(data)
    assert [session.title for session in client.listed()] == [title]


def test_a_prompt_longer_than_the_head_still_names_its_session(client: Client) -> None:
    """Its beginning is enough, and escapes are decoded."""
    for data in client.asked("Über \\ \U0001f914 " * 20_000):
        client.stand(data)
        (session,) = client.listed()
        assert session.title.startswith("Über \\ \U0001f914 Über")
        assert len(session.title) == 200


@pytest.mark.cases("unlisted")
def test_a_session_in_which_no_user_speaks_is_not_listed(
    client: Client, case: tuple[bytes, bool]
) -> None:
    """Its id may lead there all the same."""
    data, is_found = case
    path = client.stand(data)
    assert client.listed() == []
    assert locate(client, ID) == ([path] if is_found else [])


def test_what_is_no_transcript_beside_the_sessions_is_none(client: Client) -> None:
    """Not what an interrupted rewrite left, an empty file, or what is no regular file."""
    path = client.stand(client.talk)
    for name in client.no_transcripts:
        odd = path.parent / name
        odd.parent.mkdir(exist_ok=True)
        odd.write_bytes(client.talk)
    folder, pipe = (client.project / client.name_of(name) for name in (OTHER, THIRD))
    folder.mkdir()
    os.mkfifo(pipe)
    (client.project / client.name_of("ffffffff-0000-4000-8000-000000000004")).write_bytes(b"")
    refused: list[OSError] = []
    found = client.reader.sessions(client.storage, refused.append)
    assert [session.file for session in found] == [path]
    assert {Path(str(error.filename)) for error in refused} <= {folder, pipe}


def test_the_same_id_in_two_projects_is_listed_twice_newest_first(client: Client) -> None:
    """And an empty file says that the session is not here, however new it is."""
    projects = [client.project.with_name(name) for name in ("resumed", "moved", "old")]
    paths = [
        aged(client.stand(data, project=project), age)
        for age, (project, data) in enumerate(
            zip(projects, (b"", client.talk, client.talk), strict=True)
        )
    ]
    assert [session.file for session in client.listed()] == paths[1:]
    assert locate(client, ID) == paths[1:]


def test_a_store_is_listed_from_any_folder_of_it(client: Client) -> None:
    """The root, all projects, or one of them: people keep sessions in each."""
    path = client.stand(client.talk)
    for folder in (client.storage, *client.way):
        assert [session.file for session in client.listed(folder)] == [path]
        assert client.reader.locate(folder, ID) == [path]


def test_ids_are_found_whole_or_by_their_beginning(client: Client) -> None:
    """From eight characters on, the one written last first."""
    ids = [f"{OTHER[:-1]}{end}" for end in "cd"]
    paths = [
        aged(client.stand(client.session(native), f"{client.name_of(native)}"), age)
        for age, native in enumerate(ids)
    ]
    assert locate(client, ids[1]) == paths[1:]
    assert locate(client, OTHER[:8]) == paths
    assert locate(client, OTHER[:7]) == []


@pytest.mark.parametrize(
    "native", ["", "../../../etc", "../-w/0000", "a/b", "x" * 200, "[a-z]*", "0" * 36]
)
def test_what_cannot_be_an_id_is_not_looked_for(client: Client, native: str) -> None:
    """Nothing but a plain word names a session."""
    client.stand(client.talk)
    assert locate(client, native) == []


def test_a_huge_file_is_listed_from_its_two_ends(client: Client) -> None:
    """A terabyte costs 128 KiB of reading, by the system's own count."""
    path = client.stand(client.talk)
    with path.open("r+b") as file:
        file.seek(TEBIBYTE)
        file.write(b"\n" + client.titled("huge"))
    before = read_so_far()
    (session,) = client.listed()
    spent = read_so_far() - before
    assert (session.title, session.cwd) == ("huge", client.listed_cwd)
    assert session.size > TEBIBYTE
    assert spent < 2 * HEAD + 4096


def test_what_the_system_refuses_is_named_and_stops_no_other(client: Client) -> None:
    """A link that leads in a circle, for one, which even root cannot read."""
    path = client.stand(client.talk)
    loop = client.project / client.name_of(OTHER)
    loop.symlink_to(loop)
    refused: list[OSError] = []
    found = client.reader.sessions(client.storage, refused.append)
    assert [session.file for session in found] == [path]
    assert [error.filename for error in refused] == [str(loop)]


def test_a_session_comes_with_its_children_in_every_layout(client: Client) -> None:
    """Not with those of another session; a walk finds all, what stands beside sessions first."""
    for name, data in (*client.family.items(), *client.strangers.items()):
        client.stand(data, name)
    for name, data in client.beside.items():
        client.stand(data, name)
    found = client.reader.files(client.main).transcripts
    assert [one.source.path for one in found] == [client.project / name for name in client.family]
    assert [one.role for one in found] == ["main", *["subagent"] * (len(found) - 1)]
    walked = list(client.reader.transcripts(client.storage, pytest.fail))
    assert {*walked} == {client.project / name for name in client.family | client.strangers}
    is_flat = [path.parent == client.main.parent for path in walked]
    assert is_flat == sorted(is_flat, reverse=True)
    assert [session.file for session in client.listed()] == [client.main]


def test_links_are_followed_once(client: Client, tmp_path: Path) -> None:
    """A project's folder may be a link; a link back up, or a second one, shows nothing twice."""
    client.stand(client.talk)
    elsewhere = client.project.rename(tmp_path / "elsewhere")
    for name, target in (
        (client.project.name, elsewhere),
        ("second", elsewhere),
        ("up", client.project.parent),
        ("gone", tmp_path / "gone"),
    ):
        client.project.with_name(name).symlink_to(target)
    assert len(client.listed()) == 1
    assert len(locate(client, ID)) == 1
    assert len(list(client.reader.transcripts(client.storage, pytest.fail))) == 1


@pytest.mark.cases("stores")
def test_a_store_is_known_by_what_stands_in_it(
    client: Client, case: tuple[str, list[str], bool], tmp_path: Path
) -> None:
    """Where secrets may stand, nothing but transcripts is opened."""
    name, files, expected = case
    for file in files:
        path = tmp_path / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert client.reader.is_storage(tmp_path / name) is expected
