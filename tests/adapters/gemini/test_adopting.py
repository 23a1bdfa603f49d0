"""What is particular to a session of Gemini CLI for an agent that goes on with it."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest
from gemini_client import CHILD, DOCUMENT, MAIN, OLD, Gemini
from gemini_files import ID, NAME, STUB, TALK, header, log, message, prompt
from gemini_reading import FIXTURES

from agentsdir.adapters.gemini.moving import adoptable
from agentsdir.adapters.protocol import Adoptable
from agentsdir.formats.errors import Invalid


def named(session: Adoptable) -> dict[str, str]:
    """Return the roles of a session's files by their paths."""
    return {file.path: file.role for file in session.files}


def test_of_a_session_of_two_ages_the_log_is_taken(client: Gemini) -> None:
    """Whichever was named: the client would go on with the log."""
    old, new = f"tmp/my-work/{OLD}", f"tmp/my-work/{MAIN}"
    path = client.stand(DOCUMENT, OLD)
    assert named(adoptable(path)) == {old: "main"}
    client.stand(TALK)
    assert named(adoptable(path)) == {new: "main", old: "sidecar"}
    client.stand(STUB)
    assert named(adoptable(path))[old] == "main"


def test_a_document_in_one_line_is_a_session_wherever_it_stands(tmp_path: Path) -> None:
    """Also where it does not say in which folder it was."""
    path = tmp_path / "kept.txt"
    path.write_bytes(json.dumps({**header(), "messages": [prompt("hi")]}).encode())
    session = adoptable(path)
    assert (session.cwd, session.model) == ("", "")
    assert named(session) == {f"tmp/project/{OLD}": "main"}


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


@pytest.mark.parametrize("name", ["qwen.jsonl", "prompt-log.json", "saved-chat.json"])
def test_what_the_client_could_not_go_on_with_is_refused(tmp_path: Path, name: str) -> None:
    """A fork's file, and a last resort, also where the id of a session stands in it."""
    data = (FIXTURES / name).read_bytes()
    main = tmp_path / name
    main.write_bytes(data if name.endswith("l") else orjson.dumps(orjson.loads(data)))
    with pytest.raises(Invalid) as caught:
        adoptable(main)
    assert caught.value.kind == "bad-native-id"


def test_an_id_of_the_users_own_is_one(client: Gemini) -> None:
    """The client takes more than uuids."""
    main = client.stand(log(header("my-own_id"), prompt("hi")), "chats/session-x-my-own_i.jsonl")
    assert adoptable(main).id == "my-own_id"


def test_a_file_that_says_anything_is_read(client: Gemini) -> None:
    """Lists where texts belong, and no model at all."""
    odd = log(header(), {"$set": {"summary": ["x"]}}, message("u", "user", {"a": 1}))
    main = client.stand(odd + b'{"$set":[],"model":1}\nx\n')
    assert (adoptable(main).title, adoptable(main).model) == ("", "")
