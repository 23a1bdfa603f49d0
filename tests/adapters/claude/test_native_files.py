"""What is particular to the files of a session of Claude Code."""

from __future__ import annotations

from claude_client import Claude
from claude_support import lines, said, user
from clients import ID

CHILD = user("c1", None, "look", isSidechain=True, sessionId=ID)


def test_odd_files_keep_their_paths_where_a_session_was_moved(client: Claude) -> None:
    """A file that no client of today would name so has no place under the saved folder."""
    client.stand(client.talk)
    odd = client.stand(lines({**CHILD, "agentId": "a.b"}), "agent-a.b.jsonl")
    saved = client.save({client.transcript: client.talk})
    paths = [file.path for file in client.provider.native_files(client.spec(saved))]
    assert paths == [*saved, odd.relative_to(client.storage).as_posix()]


def test_a_hidden_folder_holds_no_file_of_a_session_and_any_name_has_room(client: Claude) -> None:
    """Names may leave no room beside them."""
    client.stand(client.talk)
    long = f"agent-{'a' * 243}.jsonl"
    for name in (".hidden/agent-a2.jsonl", long):
        client.stand(lines({**CHILD, "agentId": "a1"}), f"{ID}/subagents/{name}")
    files = client.provider.native_files(client.spec({}))
    assert [file.path.rpartition("/")[2] for file in files] == [client.transcript, long]


def test_a_sidecar_comes_with_its_subagent(client: Claude) -> None:
    """It says what the subagent is."""
    for name, data in client.whole.items():
        client.stand(data, name)
    session = client.reader.files(client.main)
    assert [one.sidecar is not None for one in session.transcripts] == [False, True, False]


def test_what_the_client_says_itself_is_by_no_model(client: Claude) -> None:
    """The last model that was one goes on, in the first working directory."""
    own = said("a9", "a1", "error", model="<synthetic>")
    session = client.reader.adoptable(client.stand(client.talk + lines({**own, "cwd": "/w"})))
    assert (session.model, session.cwd) == ("m-1", "/old/place")
