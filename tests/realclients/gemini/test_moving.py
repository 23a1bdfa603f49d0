"""Sessions that are moved, forked and adopted go on in the real client, with all they know."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from carried import goes_on_from_a_document
from gemini_desk import GeminiDesk as Desk

Make = Callable[..., Desk]


def test_an_agent_moves_to_another_home_and_folder_and_goes_on(
    any_desk: Desk, desk_of: Make
) -> None:
    """With its subagents and large results; the model is sent what was said here, twice."""
    agent = any_desk.new()
    for plan in ("tools", any_desk.delegate, "large"):
        assert any_desk.send(agent, plan).code == 0
    there = desk_of("other place é", any_desk.client)
    bundle = str(any_desk.folder / "bundle.tar.gz")
    any_desk.ok("export", "--bundle", agent, bundle)
    moved = there.ok("import", bundle, "--cwd", str(there.work)).out.strip()
    before = any_desk.native_files(any_desk.native(agent))
    for _ in (1, 2):
        sent = there.recalled(moved)
        for text in ("Four tools ran.", "The helper reported.", "That was long."):
            assert sent.texts.count(text) == 1
        there.later()
    after = {name.rsplit("/", 1)[-1] for name in there.native_files(there.native(moved))}
    assert {name.rsplit("/", 1)[-1] for name in before if "/session-" not in name} <= after


def test_a_session_goes_on_in_another_folder_of_the_same_home(desk: Desk) -> None:
    """A client looks in the folder of its working directory alone."""
    agent = desk.new()
    desk.send(agent, "hello")
    desk.ok("export", "--bundle", agent, "moved.tar")
    desk.ok("rm", agent, "--yes")
    other = desk.work / "elsewhere"
    other.mkdir()
    desk.ok("import", "moved.tar", "--cwd", str(other))
    for _ in range(2):
        desk.ok("send", agent, desk.ask("again"))
        assert "Good day." in desk.api.of("again")[-1].texts
    assert desk.of(agent, "turn.error") == []
    desk.quiet()
    assert desk("validate", "--modes", str(desk.root)).out == ""


def test_a_fork_goes_on_by_itself(desk: Desk) -> None:
    """Both have the history so far; neither is sent what the other says later."""
    agent = desk.new()
    desk.send(agent, "tools")
    fork = desk.ok("fork", agent).out.strip()
    assert desk.native(fork) != desk.native(agent)
    assert desk.send(fork, "hello").code == 0
    sent = desk.recalled(agent)
    (forked,) = desk.api.of("hello")
    assert "Four tools ran." in forked.texts
    assert "Four tools ran." in sent.texts
    assert not any("[[hello" in text for text in sent.texts)
    desk.sound(fork)


def test_an_import_beside_the_original_goes_on_as_another(desk: Desk) -> None:
    """In the same root and the same store: another session, with the same history."""
    agent = desk.new()
    desk.send(agent, "hello")
    desk.ok("export", "--bundle", agent, "../bundle.tar")
    before = desk.native_files(desk.native(agent))

    other = desk("import", "../bundle.tar").out.strip()

    assert other != agent
    assert "Good day." in desk.recalled(other).texts
    assert desk.native_files(desk.native(agent)) == before


def test_a_session_of_the_client_is_adopted_and_gone_on_with(any_desk: Desk) -> None:
    """It stays the client's own, in its own file."""
    native = any_desk.begun_by_hand(str(uuid.uuid4()), any_desk.ask("tools"))
    before = any_desk.native_files(native)

    agent = any_desk.ok("new", "--from", native[:8]).out.strip()
    assert any_desk.native(agent) == native
    assert any_desk.native_files(native) == before
    assert any_desk.said(agent)[-1] == "Four tools ran."
    any_desk.later()
    assert any_desk.recalled(agent).texts.count("Four tools ran.") == 1


def test_a_session_that_is_gone_from_the_client_is_put_back(desk: Desk) -> None:
    """Our copy of the transcript is enough."""
    agent = desk.new()
    desk.send(agent, "hello")
    for path in desk.chats(desk.native(agent)):
        path.unlink()
    assert "Good day." in desk.recalled(agent).texts


def test_a_document_of_an_older_client_goes_on_in_a_newer_one(last_desk: Desk, desk: Desk) -> None:
    """The newer one leaves the document as it is, and goes on in a log beside it."""
    agent = last_desk.new()
    last_desk.send(agent, "tools")
    newer = desk
    bundle = str(last_desk.folder / "bundle.tar")
    last_desk.ok("export", "--bundle", agent, bundle)
    newer.ok("import", bundle, "--cwd", str(newer.work))

    newer.ok("send", agent, newer.ask("again"))
    newer.ok("send", agent, newer.ask("again"))

    sent = newer.api.of("again")[-1]
    assert sent.texts.count("Four tools ran.") == 1
    assert sent.texts.count("This is the next turn.") == 1
    blocks = newer.blocks(agent).values()
    assert sum(b["type"] == "tool_use" for b in blocks) == 4
    newer.quiet()
    assert newer("validate", "--modes", str(newer.root)).out == ""


def test_a_profile_is_there_before_the_first_turn(desk: Desk) -> None:
    """The model reads its instructions; a file that was there stays, and is named."""
    profile = desk.root / "profiles" / "reviewer"
    (profile / "agents").mkdir(parents=True)
    (profile / "instructions.md").write_text("Always look twice.\n")
    agent = desk.new("--profile", "reviewer")

    done = desk.send(agent, "hello")

    assert (done.code, done.out) == (0, "Good day.\n"), done
    assert (desk.work / "GEMINI.md").read_text() == "Always look twice.\n"
    (request,) = desk.api.of("hello")
    sent = [request.system, *(str(part.get("text")) for part in request.parts)]
    assert any("Always look twice." in text for text in sent)
    desk.quiet()


def test_an_agent_goes_on_from_a_document(any_desk: Desk, desk_of: Callable[..., Desk]) -> None:
    """What `inspect --saved` prints is all that another user's client needs, of both agents."""
    goes_on_from_a_document(any_desk, desk_of("other place é", any_desk.client))
