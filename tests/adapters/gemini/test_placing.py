"""What is particular to placing a session of Gemini CLI: whose folder it is, and which files go."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from clients import OTHER
from gemini_client import DOCUMENT, MAIN, OLD, Gemini
from gemini_files import STUB, TALK, answer, header, log, prompt

from agentsdir.adapters.gemini import moving
from agentsdir.adapters.gemini.moving import session_files
from agentsdir.formats.errors import Invalid, UnsafePath

SAVED = {f"tmp/elsewhere/{MAIN}": TALK}
SAVED_OLD = {f"tmp/elsewhere/{OLD}": DOCUMENT}
RESUMED = "chats/session-2026-02-02T00-00-6f1b2f4e.jsonl"
RENAMED = "chats/session-renamed.jsonl"


def test_the_folder_is_marked_and_a_stub_stays_behind(client: Gemini) -> None:
    """The client knows the folder by the mark; a stub would make it delete the session."""
    assert client.place({**SAVED, f"tmp/elsewhere/{RESUMED}": STUB}) == [client.main]
    assert (client.project / ".project_root").read_text() == client.listed_cwd


def test_a_document_gets_nothing_behind_it(client: Gemini) -> None:
    """It is no file of lines."""
    client.place(SAVED_OLD)
    assert (client.project / OLD).read_bytes() == DOCUMENT


FOLDERS = {
    "a registered slug": ("projects.json", {"My work": "taken-by-it"}, "taken-by-it"),
    "a registered slug that another has marked": ("registered", {"My work": "other"}, "my-work"),
    "a name that another has marked": ("marked", {}, "my-work-1"),
    "a name that another has registered": ("projects.json", {"/other": "my-work"}, "my-work-1"),
    "a folder that is marked as ours": ("ours", {}, "zzz"),
    "a broken registry": ("broken", {}, "my-work"),
}


@pytest.mark.parametrize(("what", "registry", "folder"), FOLDERS.values(), ids=FOLDERS)
def test_the_folder_is_the_one_that_the_client_would_take(
    client: Gemini, what: str, registry: dict[str, str], folder: str
) -> None:
    """And no file of the client's is changed: it registers what it finds marked."""
    cwd = str(client.cwd.resolve())
    named = {cwd if name == "My work" else name: slug for name, slug in registry.items()}
    made = {"projects.json": "{" if what == "broken" else json.dumps({"projects": named})}
    if what == "registered":
        made["tmp/other/.project_root"] = "/other"
    if what == "marked":
        made["history/my-work/.project_root"] = "/other"
    if what == "ours":
        made["history/zzz/.project_root"] = f"{cwd}\n"
    for name, text in made.items():
        path = client.storage / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert client.place(SAVED) == [client.storage / "tmp" / folder / MAIN]
    assert (client.storage / "tmp" / folder / ".project_root").read_text() == cwd
    assert {name: (client.storage / name).read_text() for name in made} == made
    assert client.place(SAVED) == []


def test_a_folder_of_an_older_client_is_used_as_long_as_nothing_is_in_another(
    client: Gemini,
) -> None:
    """A newer client that finds it so copies all of it; else it would never look there."""
    client.hashed.mkdir(parents=True)
    (path,) = client.place(SAVED)
    assert path.parent.parent == client.hashed
    assert not client.project.exists()
    client.stand(log(header(OTHER), prompt("x")), "chats/session-x.jsonl")
    (path,) = client.place(SAVED)
    assert path.parent.parent == client.project


def test_an_older_client_is_served_by_hash(client: Gemini) -> None:
    """The caller, which asked it for its version, says so; it marks no folder."""
    spec = client.spec(SAVED_OLD)
    assert moving.materialize(spec, by_hash=True) == [client.hashed / OLD]
    assert [p.name for p in client.hashed.iterdir()] == ["chats"]
    assert {file.path for file in session_files(spec, by_hash=True)} == {*SAVED_OLD}


def test_a_session_under_another_name_is_no_second_one(client: Gemini) -> None:
    """The client would go on with the one that it wrote last."""
    client.stand(log(header(), prompt("another", "u9"), answer()), RENAMED)
    with pytest.raises(Invalid) as caught:
        client.place(SAVED)
    assert caught.value.kind == "transcript-differs"
    client.stand(STUB, RENAMED)
    assert len(client.place(SAVED)) == 1


def test_a_session_that_was_renamed_is_left_under_its_new_name(client: Gemini) -> None:
    """It is saved under both names then; put back under the old one it would be there twice."""
    name = MAIN.replace("2026", "2025")
    both = {**SAVED, f"tmp/elsewhere/{name}": TALK}
    for data in (TALK, TALK + log(prompt("more", "m9"))):
        renamed = client.stand(data, name)
        assert client.place(both) == []
        assert client.place(SAVED) == []
        (main,) = client.provider.native_files(client.spec(both))
        assert (main.role, main.path) == ("main", f"tmp/elsewhere/{name}")
    renamed.unlink()
    assert len(client.place(both)) == 1


def test_what_is_no_transcript_is_the_clients_to_rewrite(client: Gemini) -> None:
    """A stub, or an output, stays as it is."""
    saved = client.save({MAIN: TALK, RESUMED: STUB, client.output: b"x"})
    client.stand(b"other\n", RESUMED)
    client.stand(b"other", client.output)
    assert client.place(saved) == [client.main]


def test_a_file_that_appears_meanwhile_is_never_replaced(
    client: Gemini, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may begin the session between the look and the write."""
    make = moving.make_folders

    def late(storage: Path, folder: Path) -> None:
        make(storage, folder)
        if folder.name == "chats":
            client.stand(b"the client's own\n")

    monkeypatch.setattr(moving, "make_folders", late)
    with pytest.raises(Invalid) as caught:
        client.place(SAVED)
    assert caught.value.kind == "transcript-differs"
    folder = client.project / "chats"
    assert [path.read_bytes() for path in folder.iterdir()] == [b"the client's own\n"]


def test_a_folder_that_another_project_takes_meanwhile_is_left_to_it(
    client: Gemini, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next name is taken."""
    make = moving.make_folders

    def late(storage: Path, folder: Path) -> None:
        make(storage, folder)
        if folder == client.project:
            (folder / ".project_root").write_text("/other")

    monkeypatch.setattr(moving, "make_folders", late)
    (path,) = client.place(SAVED)
    assert path.parent.parent.name == "my-work-1"


def test_a_session_in_another_projects_folder_is_another_copy(client: Gemini) -> None:
    """The client looks in the folder of its working directory alone."""
    other = client.stand(TALK, project=client.storage / "tmp" / "elsewhere")
    assert client.provider.native_files(client.spec(SAVED)) == []
    (path,) = client.place(SAVED)
    assert (path.parent.parent, other.read_bytes()) == (client.project, TALK)


@pytest.mark.parametrize("what", ["fifo", "folder", "empty", "dangling"])
def test_a_mark_that_says_nothing_is_another_projects(client: Gemini, what: str) -> None:
    """Another name is taken."""
    mark = client.project / ".project_root"
    mark.parent.mkdir(parents=True)
    make = {"fifo": lambda: os.mkfifo(mark), "folder": mark.mkdir, "empty": mark.touch}
    make.get(what, lambda: mark.symlink_to("/nowhere/at/all"))()
    if what == "dangling":
        with pytest.raises(UnsafePath):
            client.place(SAVED)
    else:
        (path,) = client.place(SAVED)
        assert path.parent.parent.name == "my-work-1"


@pytest.mark.parametrize("end", [" ", "\n", "\u3000"])
def test_a_folder_that_a_client_would_not_know_again_is_refused(client: Gemini, end: str) -> None:
    """It compares the path with what it marked, of which it strips the white space."""
    client.cwd = client.cwd.rename(f"{client.cwd}{end}")
    with pytest.raises(Invalid, match="white space"):
        client.place(SAVED)
    assert not client.storage.exists()
