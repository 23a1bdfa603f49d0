"""A session as it stands in some folder, for somebody who goes on with it."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
from gemini_files import (
    ID,
    NAME,
    STUB,
    TALK,
    Machine,
    answer,
    context,
    document,
    header,
    log,
    message,
    prompt,
)
from gemini_reading import FIXTURES

from agentsdir.adapters.contract import Adoptable
from agentsdir.adapters.gemini.store.adopting import adoptable
from agentsdir.formats.errors import AgentsdirError, Invalid

CHILD = log(header("a1b2c3", "subagent"), prompt("look"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine with a client's store."""
    return Machine(tmp_path)


def named(session: Adoptable) -> dict[str, str]:
    """Return the roles of a session's files by their paths."""
    return {file.path: file.role for file in session.files}


def test_a_session_in_the_store_is_taken_whole(machine: Machine) -> None:
    """Under the paths that its files have there, and with what they say."""
    rows = header(), context(), prompt("hi"), answer(), answer("bye", "g2", model="gemini-3-pro")
    main = machine.stand(f"chats/{NAME}.jsonl", log(*rows, {"$set": {"summary": "Greeting"}}))
    machine.stand(f"chats/{ID}/a1b2c3.jsonl", CHILD)
    machine.stand(f"tool-outputs/session-{ID}/ls__1.txt", b"long")
    machine.stand("chats/session-2026-02-02T00-00-6f1b2f4e.jsonl", STUB)
    session = adoptable(main)
    assert session[:4] == (ID, str(machine.cwd.resolve()), "gemini-3-pro", "Greeting")
    assert named(session) == {
        f"tmp/my-work/chats/{NAME}.jsonl": "main",
        f"tmp/my-work/chats/{ID}/a1b2c3.jsonl": "subagent",
        f"tmp/my-work/tool-outputs/session-{ID}/ls__1.txt": "output",
        "tmp/my-work/chats/session-2026-02-02T00-00-6f1b2f4e.jsonl": "sidecar",
    }
    assert session.files[0].source.read() == main.read_bytes()


def test_of_a_session_of_two_ages_the_log_is_taken(machine: Machine) -> None:
    """Whichever was named: the client would go on with the log."""
    old = machine.stand(f"chats/{NAME}.json", document(prompt("hi"), answer()))
    assert named(adoptable(old)) == {f"tmp/my-work/chats/{NAME}.json": "main"}
    machine.stand(f"chats/{NAME}.jsonl")
    assert named(adoptable(old)) == {
        f"tmp/my-work/chats/{NAME}.jsonl": "main",
        f"tmp/my-work/chats/{NAME}.json": "sidecar",
    }
    machine.stand(f"chats/{NAME}.jsonl", STUB)
    assert named(adoptable(old))[f"tmp/my-work/chats/{NAME}.json"] == "main"


def test_a_file_anywhere_is_a_session_by_what_it_says(tmp_path: Path) -> None:
    """It gets the name and the folder that a client would give it."""
    path = tmp_path / "kept.txt"
    path.write_bytes(TALK)
    session = adoptable(path)
    assert (session.id, session.cwd) == (ID, "/old/place")
    assert named(session) == {f"tmp/place/chats/{NAME}.jsonl": "main"}
    path.write_bytes(json.dumps({**header(), "messages": [prompt("hi")]}).encode())
    session = adoptable(path)
    assert (session.cwd, session.model) == ("", "")
    assert named(session) == {f"tmp/project/chats/{NAME}.json": "main"}


def test_a_chat_outside_of_a_store_keeps_its_name(tmp_path: Path) -> None:
    """And brings its children, where they stand beside it."""
    path = tmp_path / f"{NAME}.jsonl"
    path.write_bytes(TALK)
    (tmp_path / ID).mkdir()
    (tmp_path / ID / "a1b2c3.jsonl").write_bytes(CHILD)
    assert named(adoptable(path)) == {
        f"tmp/place/chats/{NAME}.jsonl": "main",
        f"tmp/place/chats/{ID}/a1b2c3.jsonl": "subagent",
    }


@pytest.mark.parametrize("native", ["", "../x", "a b", "x" * 200])
def test_what_no_client_takes_for_an_id_is_refused(machine: Machine, native: str) -> None:
    """It would name files."""
    main = machine.stand(f"chats/{NAME}.jsonl", log(header(native), prompt("hi")))
    with pytest.raises(Invalid) as caught:
        adoptable(main)
    assert caught.value.kind == "bad-native-id"


@pytest.mark.parametrize("name", ["qwen.jsonl", "prompt-log.json", "saved-chat.json"])
def test_what_the_client_could_not_go_on_with_is_refused(tmp_path: Path, name: str) -> None:
    """A fork's file, and a last resort, also where the id of a session stands in it."""
    data = (FIXTURES / name).read_bytes()
    main = tmp_path / name
    main.write_bytes(data if name.endswith("l") else orjson.dumps(orjson.loads(data)))
    with pytest.raises(Invalid) as caught:
        adoptable(main)
    assert caught.value.kind == "bad-native-id"


def test_an_id_of_the_users_own_is_one(machine: Machine) -> None:
    """The client takes more than uuids."""
    main = machine.stand("chats/session-x-my-own_i.jsonl", log(header("my-own_id"), prompt("hi")))
    assert adoptable(main).id == "my-own_id"


def test_a_file_that_is_gone_is_an_error_of_ours(machine: Machine) -> None:
    """Between the look and the read."""
    with pytest.raises(AgentsdirError):
        adoptable(machine.project / "chats" / "none.jsonl")


def test_a_file_that_says_anything_is_read(machine: Machine) -> None:
    """Lists where texts belong, and no model at all."""
    odd = log(header(), {"$set": {"summary": ["x"]}}, message("u", "user", {"a": 1}))
    main = machine.stand(f"chats/{NAME}.jsonl", odd + b'{"$set":[],"model":1}\nx\n')
    assert (adoptable(main).title, adoptable(main).model) == ("", "")
