"""`new --get`, `resolve`, `rename`, `tag` and `outbox`, as typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from typist import Typist

from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.schemas import check

NOW = "2026-01-02T03:04:05.678900Z"
PERSON = ("--connector", "irc", "--user", "ada", "--channel", "#c")


@pytest.mark.feature("T-03")
@pytest.mark.parametrize("key", [PERSON, ("--type", "heartbeat"), ("--name", "demo")])
def test_processes_that_look_for_one_key_at_once_get_one_agent(
    shell: Any, key: tuple[str, ...]
) -> None:
    """In a directory that is not there yet, too."""
    command = [sys.executable, "-m", "agentsdir.cli.main", "new", "--get", *key]
    running = [
        subprocess.Popen(command, env=shell.environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    printed = {process.communicate(timeout=60)[0] for process in running}

    assert [process.returncode for process in running] == [0] * 6
    assert len(printed) == 1
    assert len(shell.ok("list").rows) == 1


def test_get_is_for_what_can_be_found(shell: Any) -> None:
    """Without a key each `new` would be another agent; --from makes one."""
    assert "nothing to find it by" in shell("new", "--get").err
    assert shell("new", "--get").code == 2
    one = shell.new(*PERSON)
    assert shell("new", *PERSON).code == 1
    assert shell.new("--get", *PERSON, "--name", "other") == one


@pytest.mark.feature("T-02", "T-11")
def test_resolve_prints_one_id_or_says_that_there_is_none(shell: Any) -> None:
    """A task is no foreground agent; the row is that of `list`."""
    shell.new("--type", "cron", "--cron", "nightly")
    assert shell("resolve", "most-recent-foreground").code == 10
    missing = shell("resolve", "heartbeat", "--json").error
    assert missing["kind"] == "no-such-agent"
    assert "`agentsdir new --type heartbeat`" in missing["hint"]
    assert shell("resolve", "oldest").code == 2
    one, two = shell.new(), shell.new()
    pulse = shell.new("--type", "heartbeat")

    assert shell.ok("resolve", "most-recent-foreground").out == f"{two}\n"
    shell.ok("send", one, "hi")
    assert shell.ok("resolve", "most-recent-foreground").out == f"{one}\n"
    row = shell.ok("resolve", "heartbeat", "--json").json
    assert (row["agentId"], check("session-list", row)) == (pulse, [])

    (shell.folder(two) / "events.jsonl").unlink()
    done = shell("resolve", "most-recent-foreground")
    assert (done.code, done.out) == (3, f"{one}\n")
    assert f"passed over {two}" in done.err


@pytest.mark.feature("A-04")
def test_an_agent_is_found_by_its_new_name_and_the_old_one_is_free(shell: Any) -> None:
    """At work or not; an event says so, and every file follows."""
    agent = shell.new("--name", "draft")
    with locks.hold(shell.folder(agent) / ".turn"):
        row = shell.ok("rename", "draft", "night shift", "--json").json

    assert (row["name"], check("session-list", row)) == ("night shift", [])
    assert shell.ok("inspect", "night shift").json["agentId"] == agent
    assert shell("inspect", "draft").code == 10
    other = shell.new("--name", "draft")
    assert shell("rename", other, "night shift").code == 1
    assert shell("rename", other, "a/b").code == 2
    log = (shell.folder(other) / "events.jsonl").read_bytes()
    shell.ok("rename", other, "draft")
    assert (shell.folder(other) / "events.jsonl").read_bytes() == log
    child = shell.new("--type", "subagent", "--parent", agent, "--name", "x")
    shell.ok("rename", child, "draft")
    assert shell("validate").out == ""


@pytest.mark.feature("A-04", "A-13")
def test_a_snapshot_is_one_document_on_stdout(shell: Any) -> None:
    """By its schema; a damaged log gives what can be read, and says where."""
    agent = shell.new("--name", "demo")
    shell.ok("send", "demo", "hi")
    kept = shell.ok("snapshot", "demo").json
    assert check("session-snapshot", kept) == []
    assert [block["content"] for block in kept["timeline"]] == ["hi", "hi"]
    with (shell.folder(agent) / "events.jsonl").open("ab") as log:
        log.write(b"#\n")
    shell.ok("send", "demo", "more")
    done = shell("snapshot", "demo")
    assert (done.code, len(done.json["timeline"])) == (3, 4)
    assert "bad-json" in done.err
    assert shell("snapshot", "nobody", "--json").error["kind"] == "no-such-agent"


def test_tags_are_put_on_and_taken_off_in_any_order(shell: Any) -> None:
    """One that begins with h is no --help; nothing is written where nothing changes."""
    agent = shell.new("--name", "demo")
    shell.ok("tag", "demo", "+urgent", "hot", "+later")
    assert shell.ok("tag", "demo").out == "hot\nlater\nurgent\n"
    shell.ok("tag", "demo", "-hot", "-nothing", "-h")
    log = (shell.folder(agent) / "events.jsonl").read_bytes()
    shell.ok("tag", "demo", "later", "-none")
    assert (shell.folder(agent) / "events.jsonl").read_bytes() == log
    row = shell.ok("tag", "demo", "-later", "--json").json
    assert (row["tags"], check("session-list", row)) == (["urgent"], [])
    for wrong in ("+", "a b", "a,b", "--jsn", "x" * 65, "\x1b[1m"):
        assert shell("tag", "demo", wrong).code == 2
    assert shell.ok("list").rows[0]["tags"] == ["urgent"]
    assert shell("validate").out == ""


def test_a_closed_agent_keeps_its_name_and_tags(shell: Any) -> None:
    """Exit 13; nothing is recorded after its end."""
    agent = shell.new("--name", "demo")
    with write_agent(AgentPaths(shell.folder(agent), agent)) as writer:
        change = {"from": "created", "to": "terminated", "reason": "close"}
        writer.append("session.state", change, NOW)
    for command in (("rename", agent, "other"), ("tag", agent, "+x")):
        assert shell(*command).code == 13


def say(shell: Any, agent: str, message: str, text: str) -> None:
    """Leave a text in an agent's outbox."""
    with write_agent(AgentPaths(shell.folder(agent), agent)) as writer:
        who = {"connector": "irc", "userId": "ada", "channelId": "#c"}
        data = {"message_id": message, **who, "text": text, "in_reply_to": None}
        writer.append("outgoing", data, NOW)


def hook(shell: Any, body: str) -> Path:
    """Install a hook that takes texts; return the file in which it keeps them."""
    folder = shell.home / ".config" / "agentsdir" / "hooks"
    folder.mkdir(parents=True, exist_ok=True)
    kept: Path = shell.home / "taken"
    path = folder / "outgoing"
    path.write_text(f"#!/bin/sh\nkept='{kept}'\n{body}\n")
    path.chmod(0o700)
    return kept


def lines(path: Path) -> list[Any]:
    """Return the documents of a file of JSON Lines."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def texts(kept: Path) -> list[str]:
    """Return the texts that a hook took."""
    return [document["text"] for document in lines(kept)]


ONE, TWO = "1" * 24, "2" * 24


def test_the_outbox_lists_what_waits_and_hands_it_to_the_hook(shell: Any) -> None:
    """As documents of their schemas; what is taken waits no more."""
    agent = shell.new(*PERSON)
    say(shell, agent, ONE, "first\nline")
    say(shell, agent, TWO, "second")

    rows = shell.ok("outbox").rows
    assert [row["message_id"] for row in rows] == [ONE, TWO]
    assert all(check("outbox-entry", row) == [] for row in rows)
    page = shell.ok("outbox", agent, tty=True).out
    assert page.splitlines()[0] == f"{ONE}  {agent}  irc ada #c  first line"
    done = shell("outbox", "--deliver")
    assert (done.code, len(done.rows)) == (0, 2)
    assert "there is no outgoing hook" in done.err

    kept = hook(shell, 'cat >> "$kept"')
    done = shell("outbox", "--deliver")
    assert (done.code, done.out, done.err) == (0, "", "agentsdir: nothing waits\n")
    assert texts(kept) == ["first\nline", "second"]
    assert all(check("outgoing-text", document) == [] for document in lines(kept))
    assert shell("validate").out == ""


def test_an_agent_that_cannot_be_written_to_keeps_no_other_text_back(shell: Any) -> None:
    """Exit 3; it is named."""
    spoilt, sound = sorted(
        shell.new("--connector", "irc", "--user", user, "--channel", "#c") for user in ("a", "b")
    )
    say(shell, spoilt, ONE, "first")
    say(shell, sound, TWO, "second")
    kept = hook(shell, 'cat >> "$kept"')
    (shell.root.parent / "another name").hardlink_to(shell.folder(spoilt) / "events.jsonl")

    done = shell("outbox", "--deliver")

    assert (done.code, [row["message_id"] for row in done.rows]) == (3, [ONE])
    assert "hard link" in done.err
    assert "second" in texts(kept)


REFUSING = {
    "says no": ("echo 'no network' >&2; exit 4", "no network"),
    "is killed": ("kill -9 $$", "signal 9"),
}


@pytest.mark.parametrize(("body", "reason"), REFUSING.values(), ids=REFUSING)
def test_a_hook_that_fails_leaves_the_text_and_its_reason(
    shell: Any, body: str, reason: str
) -> None:
    """Exit 1; a command may say that it was taken all the same."""
    agent = shell.new(*PERSON)
    say(shell, agent, ONE, "first")
    hook(shell, body)

    done = shell("outbox", "--deliver", agent)

    assert (done.code, [row["message_id"] for row in done.rows]) == (1, [ONE])
    assert reason in done.err
    assert b'"hook.failed"' in (shell.folder(agent) / "events.jsonl").read_bytes()
    shell.ok("outbox", agent, "--done", ONE)
    assert shell.ok("outbox").out == ""
    assert shell("outbox", "--done", ONE).code == 2
    assert shell("outbox", agent, "--done", TWO).code == 2


def test_all_that_wait_can_be_said_to_be_taken(shell: Any) -> None:
    """Of one agent, or of all; an agent that cannot be written to is named, and keeps its own."""
    spoilt, sound = (
        shell.new("--connector", "irc", "--user", user, "--channel", "#c") for user in ("a", "b")
    )
    for agent in (spoilt, sound):
        say(shell, agent, ONE, "first")
        say(shell, agent, TWO, "second")
    assert shell("outbox", sound, "--done", ONE, "--done", "all").code == 2

    shell.ok("outbox", sound, "--done", ONE, "--done", TWO)
    assert [row["agentId"] for row in shell.ok("outbox").rows] == [spoilt, spoilt]
    other_name = shell.root.parent / "another name"
    other_name.hardlink_to(shell.folder(spoilt) / "events.jsonl")
    done = shell("outbox", "--done", "all")
    assert (done.code, "hard link" in done.err) == (3, True)
    other_name.unlink()

    done = shell("outbox", "--done", "all")
    assert (done.code, done.out, done.err) == (0, "", "agentsdir: recorded as taken: 2\n")
    assert shell.ok("outbox").out == ""
    assert "nothing waits" in shell("outbox", "--done", "all").err
    assert shell("validate").out == ""


def test_a_hook_that_is_not_ones_own_is_not_passed_over(shell: Any) -> None:
    """It was meant to take the text."""
    agent = shell.new(*PERSON)
    say(shell, agent, ONE, "first")
    hook(shell, "true")
    (shell.home / ".config" / "agentsdir" / "hooks" / "outgoing").chmod(0o722)

    done = shell("outbox", "--deliver")

    assert done.code == 1
    assert "can be written by others" in done.err


def test_processes_that_hand_out_at_once_hand_out_each_text_once(shell: Any) -> None:
    """Who comes second finds the agent at work, or nothing that waits."""
    agent = shell.new(*PERSON)
    said = [f"text {number}" for number in range(5)]
    for number, text in enumerate(said):
        say(shell, agent, f"{number}" * 24, text)
    # Slow enough that all of them would find all texts waiting.
    kept = hook(shell, 'sleep 0.2; cat >> "$kept"')
    command = [sys.executable, "-m", "agentsdir.cli.main", "outbox", "--deliver"]
    running = [
        subprocess.Popen(command, env=shell.environment(), stderr=subprocess.DEVNULL)
        for _ in range(4)
    ]

    codes = {process.wait(timeout=60) for process in running}

    assert codes <= {0, 11}
    assert 0 in codes
    assert texts(kept) == said


SAYS = '{"type":"block_complete","blockId":"a","block":{"type":"assistant_text","id":"a",'
TALK = f"""\
{SAYS}"content":"Hello, Ada."}}}}
{{"type":"turn"}}
{{"type":"error","kind":"overloaded","message":"the model is overloaded"}}
{{"type":"turn"}}
{{"type":"turn"}}
{SAYS}"content":"Here again."}}}}
"""


@pytest.mark.feature("T-03", "T-08")
def test_each_turn_of_a_person_behind_a_connector_hands_out_its_answer(shell: Any) -> None:
    """The answer, or that there is none; an empty one is no text."""
    (shell.cwd / "talk.jsonl").write_text(TALK)
    agent = shell.script(str(shell.cwd / "talk.jsonl"), *PERSON)
    kept = hook(shell, 'cat >> "$kept"')
    for _ in range(4):
        shell("send", agent, "hi")

    taken = lines(kept)
    assert [one["text"] for one in taken] == ["Hello, Ada.", "Inference failed.", "Here again."]
    log = lines(shell.folder(agent) / "events.jsonl")
    asked = [r["data"]["message_id"] for r in log if r["event"] == "message.enqueued"]
    assert [one["in_reply_to"] for one in taken] == [asked[0], asked[1], asked[3]]
    assert shell.ok("outbox").out == ""
    assert shell("validate").out == ""


def test_a_renamed_agent_that_is_imported_twice_has_its_name_once(shell: Any) -> None:
    """The second is another agent, as a line says, without the name; a third keeps a free one."""
    agent = shell.new("--name", "draft")
    shell.ok("rename", agent, "final")
    shell.ok("export", "--bundle", agent, "bundle.tar")

    imported = shell("import", "bundle.tar")
    assert "it is another agent with the same history" in imported.err
    second = imported.out.strip()
    shell.ok("rename", agent, "older")
    third = shell("import", "bundle.tar").out.strip()

    names = {row["agentId"]: row["name"] for row in shell.ok("list").rows}
    assert names == {agent: "older", second: None, third: "final"}
    assert shell("validate").out == ""


def test_a_copy_answers_no_agent_that_waits_for_the_first_one(shell: Any) -> None:
    """What waits in it is run, and its answer is its own; so is that of a task."""
    asker = shell.new()
    helper = shell.new("--type", "subagent", "--parent", asker, "--name", "helper")
    data = {"sender": asker, "content": [{"type": "text", "text": "how much?"}], "sync": True}
    for number, rest in enumerate(({"kind": "system"}, {"kind": "user", "spawn": True})):
        with write_agent(AgentPaths(shell.folder(helper), helper)) as writer:
            message = {"message_id": f"m{number:023}", **data, **rest}
            writer.append("message.enqueued", message, NOW)
    shell.ok("export", "--bundle", helper, "bundle.tar")
    copy = shell("import", "bundle.tar").out.strip()
    before = (shell.folder(asker) / "events.jsonl").read_bytes()

    assert "how much?" in shell("send", "--no-message", copy).out

    assert (shell.folder(asker) / "events.jsonl").read_bytes() == before
    shell.ok("send", "--no-message", helper)
    told = lines(shell.folder(asker) / "events.jsonl")
    answers = [one["data"]["reply_to"] for one in told if one["event"] == "message.enqueued"]
    assert answers == [f"m{number:023}" for number in range(2)]
    assert shell("validate").out == ""


@pytest.mark.feature("T-03", "G-06")
def test_messages_of_one_conversation_sent_at_once_are_one_agents_in_order(shell: Any) -> None:
    """The agent is made once; each process gets its own answer, and none is lost."""
    command = [sys.executable, "-m", "agentsdir.cli.main", "send", *PERSON]
    said = [f"text {number}" for number in range(5)]
    running = [
        subprocess.Popen(
            [*command, "--", text], env=shell.environment(), stdout=subprocess.PIPE, text=True
        )
        for text in said
    ]

    assert [process.communicate(timeout=60)[0] for process in running] == [f"{t}\n" for t in said]
    (row,) = shell.ok("list").rows
    assert (row["counters"]["turns"], row["pendingCount"]) == (5, 0)
    log = lines(shell.folder(row["agentId"]) / "events.jsonl")
    asked = [r["data"]["message_id"] for r in log if r["event"] == "message.enqueued"]
    ended = [r["data"]["message_id"] for r in log if r["event"] == "message.delivered"]
    assert asked == ended
    answered = [row["in_reply_to"] for row in shell.ok("outbox").rows]
    assert answered == asked


REFUSED = {
    "an empty prompt": ["--heartbeat", ""],
    "a prompt that is not there": ["--heartbeat", "--messages", "nowhere.json"],
    "an answer that no agent gets": ["--heartbeat", "--sync", "hi"],
    "a sender that is no agent": ["--heartbeat", "--from", "missing", "hi"],
    "two prompts": ["--heartbeat", "hi", "there"],
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
def test_a_message_that_cannot_be_sent_makes_no_agent(shell: Any, arguments: list[str]) -> None:
    """It is looked at before the agent that it is for."""
    assert shell("send", *arguments).code in (2, 10)
    assert not shell.root.exists()


def test_a_turn_sends_no_message_of_another_agent(shell: Any) -> None:
    """Whichever agent `--from` names; the target gets nothing."""
    speaker, other, target = shell.new(), shell.new(), shell.new()
    shell.variables = {"AGENTSDIR_AGENT": speaker, "AGENTSDIR_TURN": "t" * 24}
    done = shell("send", "--from", other, target, "hello", "--json")
    assert (done.code, done.error["kind"]) == (2, "usage")
    assert shell.ok("inspect", target).json["pending"] == []


def test_in_a_turn_no_turn_is_run(shell: Any) -> None:
    """Its own would be waited for by what it waits for."""
    agent = shell.new()
    shell.ok("queue", agent, "later")
    shell.variables = {"AGENTSDIR_AGENT": agent, "AGENTSDIR_TURN": "t" * 24}
    with locks.hold(AgentPaths(shell.folder(agent), agent).turn):
        done = shell("send", "--no-message", "--to", agent, "--wait", "0.1", "--json")
    assert (done.code, "within a turn cannot" in done.error["message"]) == (2, True)


def test_what_is_said_beside_an_answer_at_a_terminal_begins_a_line_of_its_own(shell: Any) -> None:
    """A hook that fails is heard of on the same terminal that shows the answer."""
    hook(shell, "exit 1")
    with Typist() as person:
        subprocess.run(
            [sys.executable, "-m", "agentsdir.cli.main", "send", *PERSON, "--", "hello"],
            env=shell.environment(),
            cwd=shell.cwd,
            stdin=subprocess.DEVNULL,
            stdout=person.slave,
            stderr=person.slave,
            timeout=60,
            check=False,
        )
    lines = [line for line in person.shown.splitlines() if line and "new agent" not in line]
    first, end, second, *_ = lines
    assert first == "hello"
    assert "1 tokens in" in end
    assert second.startswith("agentsdir: ")
    assert "did not take the text" in second
