"""The files of one session in the client's store, under the paths that they are saved under."""

from __future__ import annotations

from pathlib import Path

import pytest
from gemini_files import ID, NAME, OTHER, STUB, TALK, Machine, answer, document, header, log, prompt

from agentsdir.adapters.gemini.store.native_files import session_files
from agentsdir.formats.errors import UnsafePath

CHILD = log(header("a1b2c3", "subagent"), prompt("look"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine on which a session of two ages stands, with all that belongs to one."""
    machine = Machine(tmp_path)
    machine.stand(f"chats/{NAME}.jsonl")
    machine.stand(f"chats/{NAME}.json", document(prompt("hi"), answer()))
    machine.stand("chats/session-2026-02-02T00-00-6f1b2f4e.jsonl", STUB)
    machine.stand(f"chats/{ID}/a1b2c3.jsonl", CHILD)
    machine.stand("chats/session-2026-01-02T03-05-6f1b2f4e.jsonl", log(header(kind="subagent")))
    machine.stand(f"tool-outputs/session-{ID}/ls__1.txt", b"long")
    # What is others'.
    machine.stand("chats/session-x.jsonl", log(header(OTHER), prompt("x")))
    machine.stand(f"chats/{OTHER}/a.jsonl", CHILD)
    machine.stand(f"tool-outputs/session-{OTHER}/x.txt", b"x")
    machine.stand("tool-outputs/ls_1.txt", b"x")
    machine.stand("logs.json", b"[]")
    return machine


FILES = [
    (f"chats/{NAME}.jsonl", "main"),
    (f"chats/{ID}/a1b2c3.jsonl", "subagent"),
    ("chats/session-2026-01-02T03-05-6f1b2f4e.jsonl", "subagent"),
    (f"tool-outputs/session-{ID}/ls__1.txt", "output"),
    (f"chats/{NAME}.json", "sidecar"),
    ("chats/session-2026-02-02T00-00-6f1b2f4e.jsonl", "sidecar"),
]


def test_all_that_is_the_sessions_own_is_found(machine: Machine) -> None:
    """The transcript, its children and outputs; an older twin and a stub travel, and are not read.

    Paths are relative to the client's root.
    """
    files = session_files(machine.spec({}))
    assert [(file.path, file.role) for file in files] == [
        (f"tmp/my-work/{name}", role) for name, role in FILES
    ]
    for file, (name, _) in zip(files, FILES, strict=True):
        assert file.source.read() == (machine.project / name).read_bytes()


def test_a_session_that_was_moved_has_the_paths_that_it_is_saved_under(machine: Machine) -> None:
    """It is the same all the same, in whatever folder the client has it now."""
    saved = {f"tmp/home/chats/{NAME}.jsonl": TALK}
    files = session_files(machine.spec(saved))
    assert [file.path for file in files] == [f"tmp/home/{name}" for name, _ in FILES]


def test_of_sessions_that_share_an_id_it_is_the_one_that_was_saved(tmp_path: Path) -> None:
    """Also when it is the document, and the client has gone on from it in a log beside it."""
    machine = Machine(tmp_path, "a2a-server")
    for number in (1, 2, 3):
        machine.stand(f"chats/session-{number}.jsonl", log(header("a2a-server"), prompt("x")))
    old = document(prompt("x"), sessionId="a2a-server")
    files = session_files(machine.spec({"tmp/w/chats/session-2.json": old}))
    assert [(file.path, file.role) for file in files] == [("tmp/w/chats/session-2.jsonl", "main")]


def test_a_session_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    """Nor has one of which only a stub is left in another project's folder."""
    machine = Machine(tmp_path)
    assert session_files(machine.spec({})) == []
    machine.stand(f"chats/{NAME}.jsonl", project=machine.storage / "tmp" / "elsewhere")
    assert session_files(machine.spec({f"tmp/elsewhere/chats/{NAME}.jsonl": TALK})) == []


def test_links_and_names_that_no_client_gives_are_left_out(machine: Machine) -> None:
    """What they lead to is not the client's."""
    (machine.project / f"tool-outputs/session-{ID}/link.txt").symlink_to("/etc/passwd")
    (machine.project / f"chats/{ID}/link.jsonl").symlink_to(machine.project / "logs.json")
    machine.stand(f"tool-outputs/session-{ID}/a\nb", b"x")
    machine.stand(f"tool-outputs/session-{ID}/.hidden", b"x")
    assert len(session_files(machine.spec({}))) == len(FILES)


def test_a_transcript_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """The client's own are none."""
    machine = Machine(tmp_path)
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(TALK)
    path = machine.stand(f"chats/{NAME}.jsonl")
    path.unlink()
    path.symlink_to(outside)
    with pytest.raises(UnsafePath):
        session_files(machine.spec({}))
