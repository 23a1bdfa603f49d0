"""Which files are a session's where several share its id, in this client's store."""

from __future__ import annotations

from gemini_client import MAIN, OLD, Gemini
from gemini_files import STUB, document, header, log, prompt


def test_of_sessions_that_share_an_id_it_is_the_one_that_was_saved(client: Gemini) -> None:
    """Also when it is the document, and the client has gone on from it in a log beside it."""
    client.native_id = "a2a-server"
    for number in (1, 2, 3):
        client.stand(log(header("a2a-server"), prompt("x")), f"chats/session-{number}.jsonl")
    saved = {"tmp/w/chats/session-2.json": document(prompt("x"), sessionId="a2a-server")}
    files = client.provider.native_files(client.spec(saved))
    assert [(file.path, file.role) for file in files] == [("tmp/w/chats/session-2.jsonl", "main")]


def test_a_stub_travels_and_is_not_read(client: Gemini) -> None:
    """As an older twin does."""
    resumed = "chats/session-2026-02-02T00-00-6f1b2f4e.jsonl"
    for name, data in (client.whole | {resumed: STUB}).items():
        client.stand(data, name)
    files = client.provider.native_files(client.spec({}))
    roles = client.roles | {resumed: "sidecar"}
    assert [(file.path, file.role) for file in files] == [
        (f"tmp/my-work/{name}", role) for name, role in roles.items()
    ]
    assert client.reader.adoptable(client.project / OLD).files[0].path == f"tmp/my-work/{MAIN}"


def test_a_session_in_another_projects_folder_is_another(client: Gemini) -> None:
    """The client looks in the folder of its working directory alone."""
    client.stand(client.talk, project=client.storage / "tmp" / "elsewhere")
    assert client.provider.native_files(client.spec(client.save({MAIN: client.talk}))) == []
