"""Saved sessions are put where the client finds them, and nothing of the client's is touched."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from gemini_files import ID, NAME, OTHER, STUB, TALK, Machine, answer, document, header, log, prompt

from agentsdir.adapters.gemini.store import placing
from agentsdir.adapters.gemini.store.native_files import session_files
from agentsdir.adapters.gemini.store.placing import place
from agentsdir.formats.errors import AgentsdirError, Invalid, UnsafePath

SAVED = f"tmp/elsewhere/chats/{NAME}.jsonl"
OLD = f"tmp/elsewhere/chats/{NAME}.json"
CHILD = f"tmp/elsewhere/chats/{ID}/a1b2c3.jsonl"
OUTPUT = f"tmp/elsewhere/tool-outputs/session-{ID}/ls__1.txt"
DOCUMENT = document(prompt("hi"), answer())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine on which nobody has used the client yet."""
    return Machine(tmp_path)


def placed(machine: Machine, saved: dict[str, bytes], **host: Any) -> dict[str, bytes]:
    """Place saved files; return what was written, below the client's root."""
    written = place(machine.spec(saved, **host))
    return {path.relative_to(machine.storage).as_posix(): path.read_bytes() for path in written}


@pytest.mark.feature("B-06")
def test_a_session_is_placed_with_all_that_is_its_own(machine: Machine) -> None:
    """To the byte, under the slug of the working directory, which is marked; but for a stub."""
    stub = "session-2026-02-02T00-00-6f1b2f4e.jsonl"
    files = {
        SAVED: TALK,
        OLD: DOCUMENT,
        CHILD: log(header("a1b2c3", "subagent"), prompt("look")),
        f"tmp/elsewhere/chats/{stub}": STUB,
        OUTPUT: b"long",
    }
    written = placed(machine, files)
    assert list(written)[-1] == f"tmp/my-work/chats/{NAME}.jsonl"
    del files[f"tmp/elsewhere/chats/{stub}"]
    assert written == {name.replace("elsewhere", "my-work"): data for name, data in files.items()}
    assert (machine.project / ".project_root").read_text() == str(machine.cwd.resolve())
    assert placed(machine, files) == {}
    assert {file.path for file in session_files(machine.spec(files))} == set(files)


def test_what_is_placed_is_private(machine: Machine) -> None:
    """Folders are 0700 and files 0600, and no temporary file stays."""
    placed(machine, {SAVED: TALK, OUTPUT: b"x"})
    for path in machine.home.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
        assert not path.name.endswith(".tmp")


def test_the_clients_own_variable_says_where(machine: Machine, tmp_path: Path) -> None:
    """GEMINI_CLI_HOME moves the store; what is set for the program wins."""
    elsewhere = {"GEMINI_CLI_HOME": str(tmp_path / "config")}
    variables = {"GEMINI_CLI_HOME": "/nowhere", "HOME": "/nowhere"}
    (path,) = place(machine.spec({SAVED: TALK}, variables=variables, environment=elsewhere))
    assert path == tmp_path / "config" / ".gemini" / "tmp" / "my-work" / "chats" / f"{NAME}.jsonl"


@pytest.mark.parametrize("end", [b"", TALK[:40]])
def test_a_last_line_is_ended(machine: Machine, end: bytes) -> None:
    """An LF follows a last line that lacks one, torn or whole: the client glues its own to it."""
    saved = (TALK + end)[: None if end else -1]
    assert placed(machine, {SAVED: saved}) == {f"tmp/my-work/chats/{NAME}.jsonl": saved + b"\n"}
    assert placed(machine, {SAVED: saved}) == {}


def test_a_document_gets_nothing_behind_it(machine: Machine) -> None:
    """It is no file of lines."""
    assert placed(machine, {OLD: DOCUMENT}) == {f"tmp/my-work/chats/{NAME}.json": DOCUMENT}


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
    machine: Machine, what: str, registry: dict[str, str], folder: str
) -> None:
    """And no file of the client's is changed: it registers what it finds marked."""
    cwd = str(machine.cwd.resolve())
    named = {cwd if name == "My work" else name: slug for name, slug in registry.items()}
    made = {"projects.json": "{" if what == "broken" else json.dumps({"projects": named})}
    if what == "registered":
        made["tmp/other/.project_root"] = "/other"
    if what == "marked":
        made["history/my-work/.project_root"] = "/other"
    if what == "ours":
        made["history/zzz/.project_root"] = f"{cwd}\n"
    for name, text in made.items():
        path = machine.storage / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(placed(machine, {SAVED: TALK})) == [f"tmp/{folder}/chats/{NAME}.jsonl"]
    assert (machine.storage / "tmp" / folder / ".project_root").read_text() == cwd
    assert {name: (machine.storage / name).read_text() for name in made} == made
    assert place(machine.spec({SAVED: TALK})) == []


def test_a_folder_of_an_older_client_is_used_as_long_as_nothing_is_in_another(
    machine: Machine,
) -> None:
    """A newer client that finds it so copies all of it; else it would never look there."""
    machine.hashed.mkdir(parents=True)
    (path,) = place(machine.spec({SAVED: TALK}))
    assert path.parent.parent == machine.hashed
    assert not machine.project.exists()
    machine.stand("chats/session-x.jsonl", log(header(OTHER), prompt("x")))
    (path,) = place(machine.spec({SAVED: TALK}))
    assert path.parent.parent == machine.project


def test_an_older_client_is_served_by_hash(machine: Machine) -> None:
    """Whoever asked it for its version says so; it marks no folder."""
    (path,) = place(machine.spec({OLD: DOCUMENT}), by_hash=True)
    assert path == machine.hashed / "chats" / f"{NAME}.json"
    assert [p.name for p in machine.hashed.iterdir()] == ["chats"]
    files = session_files(machine.spec({OLD: DOCUMENT}), by_hash=True)
    assert [file.path for file in files] == [OLD]


GROWN = {
    "a log": (SAVED, TALK, TALK + log(prompt("more", "u2"))),
    "a document": (OLD, DOCUMENT, document(prompt("hi"), answer("yes, and"), prompt("x", "u2"))),
}


@pytest.mark.parametrize(("name", "saved", "there"), GROWN.values(), ids=GROWN)
def test_a_session_that_has_gone_on_is_left(
    machine: Machine, name: str, saved: bytes, there: bytes
) -> None:
    """It is the client's to go on with."""
    path = machine.stand(name.removeprefix("tmp/elsewhere/"), there)
    assert placed(machine, {name: saved}) == {}
    assert path.read_bytes() == there


OTHERS = {
    "a shorter log": (SAVED, TALK, TALK[:-20]),
    "another log": (SAVED, TALK, TALK.replace(b"yes", b"no!")),
    "a document of fewer messages": (OLD, DOCUMENT, document(prompt("hi"))),
    "a document of other words": (OLD, DOCUMENT, document(prompt("hi"), answer("no"))),
    "a half document": (OLD, DOCUMENT, DOCUMENT[:-20]),
    "a child": (CHILD, TALK, STUB),
}


@pytest.mark.parametrize(("name", "saved", "there"), OTHERS.values(), ids=OTHERS)
def test_other_bytes_are_never_overwritten(
    machine: Machine, name: str, saved: bytes, there: bytes
) -> None:
    """And nothing at all is written then."""
    path = machine.stand(name.removeprefix("tmp/elsewhere/"), there)
    before = sorted(machine.home.rglob("*"))
    with pytest.raises(Invalid) as caught:
        place(machine.spec({OUTPUT: b"x", name: saved} | ({SAVED: TALK} if name == CHILD else {})))
    assert caught.value.kind == "transcript-differs"
    assert (path.read_bytes(), sorted(machine.home.rglob("*"))) == (there, before)


def test_a_session_under_another_name_is_no_second_one(machine: Machine) -> None:
    """The client would go on with the one that it wrote last."""
    machine.stand("chats/session-renamed.jsonl", log(header(), prompt("another", "u9"), answer()))
    with pytest.raises(Invalid) as caught:
        place(machine.spec({SAVED: TALK}))
    assert caught.value.kind == "transcript-differs"
    machine.stand("chats/session-renamed.jsonl", STUB)
    assert len(place(machine.spec({SAVED: TALK}))) == 1


def test_a_session_that_was_renamed_is_left_under_its_new_name(machine: Machine) -> None:
    """It is saved under both names then; put back under the old one it would be there twice."""
    name = NAME.replace("2026", "2025")
    renamed = machine.project / "chats" / f"{name}.jsonl"
    renamed.parent.mkdir(parents=True)
    both = {SAVED: TALK, SAVED.replace(NAME, name): TALK}
    for data in (TALK, TALK + log(prompt("more", "m9"))):
        renamed.write_bytes(data)
        assert placed(machine, both) == {}
        assert placed(machine, {SAVED: TALK}) == {}
        (main,) = session_files(machine.spec(both))
        assert (main.role, main.path) == ("main", SAVED.replace(NAME, name))
    renamed.unlink()
    assert len(placed(machine, both)) == 1


def test_what_is_no_transcript_is_the_clients_to_rewrite(machine: Machine) -> None:
    """A stub, or an output, stays as it is."""
    stub = "chats/session-2026-02-02T00-00-6f1b2f4e.jsonl"
    machine.stand(stub, b"other\n")
    machine.stand(OUTPUT.removeprefix("tmp/elsewhere/"), b"other")
    written = placed(machine, {SAVED: TALK, f"tmp/elsewhere/{stub}": STUB, OUTPUT: b"x"})
    assert list(written) == [f"tmp/my-work/chats/{NAME}.jsonl"]


def test_a_file_that_appears_meanwhile_is_never_replaced(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may begin the session between the look and the write."""
    make = placing.make_folders

    def late(storage: Path, folder: Path) -> None:
        make(storage, folder)
        if folder.name == "chats":
            machine.stand(f"chats/{NAME}.jsonl", b"the client's own\n")

    monkeypatch.setattr(placing, "make_folders", late)
    with pytest.raises(Invalid) as caught:
        place(machine.spec({SAVED: TALK}))
    assert caught.value.kind == "transcript-differs"
    folder = machine.project / "chats"
    assert [path.read_bytes() for path in folder.iterdir()] == [b"the client's own\n"]


def test_a_folder_that_another_project_takes_meanwhile_is_left_to_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next name is taken."""
    make = placing.make_folders

    def late(storage: Path, folder: Path) -> None:
        make(storage, folder)
        if folder == machine.project:
            (folder / ".project_root").write_text("/other")

    monkeypatch.setattr(placing, "make_folders", late)
    (path,) = place(machine.spec({SAVED: TALK}))
    assert path.parent.parent.name == "my-work-1"


def test_an_empty_file_gives_way(machine: Machine) -> None:
    """It says that nothing is here."""
    machine.stand(f"chats/{NAME}.jsonl", b"")
    assert placed(machine, {SAVED: TALK}) == {f"tmp/my-work/chats/{NAME}.jsonl": TALK}


def test_a_session_in_another_projects_folder_is_another_copy(machine: Machine) -> None:
    """The client looks in the folder of its working directory alone."""
    other = machine.stand(f"chats/{NAME}.jsonl", project=machine.storage / "tmp" / "elsewhere")
    assert session_files(machine.spec({SAVED: TALK})) == []
    (path,) = place(machine.spec({SAVED: TALK}))
    assert (path.parent.parent, other.read_bytes()) == (machine.project, TALK)


def test_the_longest_saved_copy_is_the_latest(machine: Machine) -> None:
    """A session that was placed in two folders in its life is saved under both."""
    longer = TALK + log(prompt("more", "u2"))
    saved = {SAVED: TALK, SAVED.replace("elsewhere", "b"): longer}
    assert placed(machine, saved) == {f"tmp/my-work/chats/{NAME}.jsonl": longer}


ALIEN = {
    "another session": ("tmp/x/chats/session-y.jsonl", log(header(OTHER), prompt("x"))),
    "another session's folder": (f"tmp/x/chats/{OTHER}/a.jsonl", b"x"),
    "a chat that says nothing": ("tmp/x/chats/session-y.jsonl", b"x"),
    "settings": ("settings.json", TALK),
    "settings below": ("tmp/x/settings.json", TALK),
    "a mark": ("tmp/x/.project_root", b"/etc"),
    "a way out": (f"tmp/x/chats/{ID}/../../../settings.json", b"x"),
    "a way out of the outputs": (f"tmp/x/tool-outputs/session-{ID}/../x", b"x"),
    "a hidden file": (f"tmp/x/tool-outputs/session-{ID}/.x", b"x"),
    "a line in a name": (f"tmp/x/tool-outputs/session-{ID}/a\nb", b"x"),
    "a shared output": ("tmp/x/tool-outputs/ls_1.txt", b"x"),
    "an empty part": (f"tmp/x/chats/{ID}//a.jsonl", b"x"),
    "no transcript among children": (f"tmp/x/chats/{ID}/a.sh", b"x"),
    "a name no client gives": ("tmp/x/chats/x.jsonl", TALK),
    "deeper": (f"tmp/x/chats/{ID}/a/b.jsonl", b"x"),
}


@pytest.mark.parametrize(("name", "data"), ALIEN.values(), ids=ALIEN)
def test_only_the_sessions_own_files_have_a_place(machine: Machine, name: str, data: bytes) -> None:
    """What an imported bundle calls a transcript cannot become anything else of the client's."""
    placed(machine, {SAVED: TALK, name: data})
    found = {path for path in machine.home.rglob("*") if path.is_file()}
    assert found == {machine.project / "chats" / f"{NAME}.jsonl", machine.project / ".project_root"}


@pytest.mark.parametrize("native", ["../x", "", "x/y", "x" * 200])
def test_only_an_id_names_a_session(tmp_path: Path, native: str) -> None:
    """Anything else the client would not take is not placed."""
    machine = Machine(tmp_path, native)
    assert place(machine.spec({SAVED: log(header(native), prompt("x"))})) == []
    assert not machine.storage.exists()


@pytest.mark.parametrize("what", ["tmp", "project", "chats", "file", "dangling"])
def test_nothing_is_written_behind_a_link(machine: Machine, tmp_path: Path, what: str) -> None:
    """A link in the store leads nowhere: what is outside stays as it was."""
    outside = tmp_path / "outside"
    outside.mkdir()
    file = machine.project / "chats" / f"{NAME}.jsonl"
    places = {"tmp": machine.storage / "tmp", "project": machine.project, "chats": file.parent}
    place_of = places.get(what, file)
    place_of.parent.mkdir(parents=True)
    target = {"file": outside / "file", "dangling": outside / "none"}.get(what, outside)
    if what == "file":
        target.write_bytes(TALK)
    place_of.symlink_to(target)
    with pytest.raises(UnsafePath):
        place(machine.spec({SAVED: TALK}))
    assert [path.name for path in outside.iterdir()] == (["file"] if what == "file" else [])


def test_a_fifo_in_place_is_refused(machine: Machine) -> None:
    """It is not opened for good."""
    path = machine.project / "chats" / f"{NAME}.jsonl"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(UnsafePath):
        place(machine.spec({SAVED: TALK}))


@pytest.mark.parametrize("what", ["fifo", "folder", "empty", "dangling"])
def test_a_mark_that_says_nothing_is_somebodys(machine: Machine, what: str) -> None:
    """Another name is taken."""
    mark = machine.project / ".project_root"
    mark.parent.mkdir(parents=True)
    make = {"fifo": lambda: os.mkfifo(mark), "folder": mark.mkdir, "empty": mark.touch}
    make.get(what, lambda: mark.symlink_to("/nowhere/at/all"))()
    if what == "dangling":
        with pytest.raises(UnsafePath):
            place(machine.spec({SAVED: TALK}))
    else:
        (path,) = place(machine.spec({SAVED: TALK}))
        assert path.parent.parent.name == "my-work-1"


@pytest.mark.parametrize("end", [" ", "\n", "\u3000"])
def test_a_folder_that_a_client_would_not_know_again_is_refused(machine: Machine, end: str) -> None:
    """It compares the path with what it marked, of which it strips the white space."""
    machine.cwd = machine.cwd.rename(f"{machine.cwd}{end}")
    with pytest.raises(Invalid, match="white space"):
        place(machine.spec({SAVED: TALK}))
    assert not machine.storage.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(machine: Machine) -> None:
    """Who owns it could read the session, or change it."""
    machine.project.mkdir(parents=True)
    os.chown(machine.project, 12345, 12345)
    with pytest.raises(UnsafePath, match="another user"):
        place(machine.spec({SAVED: TALK}))


def test_a_store_that_cannot_be_made_is_an_error_of_ours(machine: Machine) -> None:
    """A file where the store should be is named."""
    machine.storage.write_bytes(b"")
    with pytest.raises(AgentsdirError):
        place(machine.spec({SAVED: TALK}))
    assert machine.storage.read_bytes() == b""


def test_an_agent_without_a_transcript_has_nothing_to_place(machine: Machine) -> None:
    """The first turn makes it."""
    assert place(machine.spec({})) == []
    assert place(machine.spec({CHILD: TALK, OUTPUT: b"x"})) == []
    assert not machine.storage.exists()
