"""Which files of the store are a session's, what an agent that adopts it gets, and a fork."""

from __future__ import annotations

from pathlib import Path

import pytest
from clients import ID, OTHER, Client

from agentsdir.formats.errors import AgentsdirError, Invalid, UnsafePath
from agentsdir.formats.findings import Finding
from agentsdir.formats.source import Source


def stand_all(client: Client) -> None:
    """Put all files of a session into the store, beside those of others."""
    for name, data in (client.foreign | client.whole).items():
        client.stand(data, name)


def found(client: Client, below: str = "") -> dict[str, str]:
    """Return the roles of a session's files by their names; their paths must begin with `below`.

    Args:
        below: the folder of the project that the session is saved under, if it is.
    """
    saved = {f"{below}/{client.transcript}": client.talk} if below else {}
    files = client.provider.native_files(client.spec(saved))
    start = f"{below or client.project.relative_to(client.storage).as_posix()}/"
    assert all(file.path.startswith(start) for file in files)
    return {file.path.removeprefix(start): file.role for file in files}


def test_all_that_is_the_sessions_own_is_found(client: Client) -> None:
    """The transcript, its children and what they point to, under their paths in the store."""
    stand_all(client)
    assert found(client) == client.roles
    for file in client.provider.native_files(client.spec({})):
        assert file.source.read() == (client.storage / file.path).read_bytes()


def test_a_session_that_was_moved_has_the_paths_that_it_is_saved_under(client: Client) -> None:
    """It is the same all the same, in whatever folder the client has it now."""
    stand_all(client)
    assert found(client, client.elsewhere) == client.roles


def test_a_session_that_is_not_there_has_no_files(client: Client) -> None:
    """Nor has one whose id is the beginning of another's: an imported agent may have any."""
    assert found(client) == {}
    client.stand(client.talk)
    client.native_id = ID[:8]
    assert client.provider.native_files(client.spec({})) == []


def test_links_and_names_that_no_client_gives_are_left_out(client: Client, tmp_path: Path) -> None:
    """What they lead to is not the client's."""
    stand_all(client)
    (tmp_path / "secret").write_bytes(client.talk)
    child, output = client.project / client.child, client.project / client.output
    for path in (child, output):
        path.with_name(f"link-{path.name}").symlink_to(tmp_path / "secret")
        path.with_name("deeper").symlink_to(tmp_path)
    assert {file.source.path for file in client.reader.adoptable(client.main).files} == {
        client.project / name for name in client.whole
    }
    child.with_name(f".{child.name}").write_bytes(child.read_bytes())
    child.with_name(f"a\nb-{child.name}").write_bytes(child.read_bytes())
    output.with_name("a\nb").write_bytes(b"x")
    assert found(client) == client.roles


def test_a_transcript_that_is_a_link_is_refused(client: Client, tmp_path: Path) -> None:
    """It could lead to anything, and all of it would be copied."""
    outside = tmp_path / "outside.jsonl"
    client.stand(client.talk).rename(outside)
    client.main.symlink_to(outside)
    with pytest.raises(UnsafePath, match="is a link"):
        found(client)


def test_a_session_in_the_store_is_taken_whole(client: Client) -> None:
    """Where it was, the last model, the title, and every file, under the paths that they have."""
    stand_all(client)
    client.stand(client.talk + client.more + client.titled("Greeting"))
    session = client.reader.adoptable(client.main)
    assert session[:4] == (ID, client.listed_cwd, client.model, "Greeting")
    assert [(file.path, file.role) for file in session.files] == [
        (f"{client.project.relative_to(client.storage).as_posix()}/{name}", role)
        for name, role in client.roles.items()
    ]
    assert session.files[0].source.read() == client.main.read_bytes()


def test_a_file_anywhere_is_a_session_by_what_it_says(client: Client, tmp_path: Path) -> None:
    """It gets the name and the folder that a client would give it."""
    path = tmp_path / "kept.jsonl"
    path.write_bytes(client.talk)
    session = client.reader.adoptable(path)
    assert (session.id, session.cwd) == (ID, "/old/place")
    assert [(file.path, file.role) for file in session.files] == [(client.adopted, "main")]


@pytest.mark.cases("no_ids")
def test_a_session_without_an_id_is_refused(client: Client, case: str, tmp_path: Path) -> None:
    """The client would not take it, and it would name files."""
    path = tmp_path / "kept.jsonl"
    path.write_bytes(client.session(case))
    with pytest.raises(Invalid) as caught:
        client.reader.adoptable(path)
    assert caught.value.kind == "bad-native-id"


def test_a_file_that_is_gone_is_an_error_of_ours(client: Client) -> None:
    """Between the look and the read."""
    with pytest.raises(AgentsdirError):
        client.reader.adoptable(client.main)


def forked(client: Client, files: dict[str, bytes]) -> tuple[list[bytes], list[Finding]]:
    """Return the files of a fork, and what was reported."""
    findings: list[Finding] = []
    sources = {name: Source(name, data=data) for name, data in client.save(files).items()}
    made = client.provider.fork(sources, ID, OTHER, findings.append)
    return [file.source.read() for file in made], findings


def test_a_fork_leaves_damaged_lines_out_and_reports_them(client: Client) -> None:
    """What can be read is taken, under the new id; a last line without an end gets one."""
    damaged = client.talk + client.torn + b"\n" + client.more[:-1]
    copies, findings = forked(client, {client.transcript: damaged})
    assert copies == [(client.talk + client.more).replace(ID.encode(), OTHER.encode())]
    assert [finding.id for finding in findings] == ["bad-json"]
