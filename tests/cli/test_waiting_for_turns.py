"""`wait` ends when turns and messages have, and its exit code says how."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import until

from agentsdir.engine import waiting
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.layout import AgentPaths, Layout


def talk(shell: Any, *lines: dict[str, Any]) -> str:
    """Return an agent whose turns are played from a script, one for each line."""
    script = shell.cwd / "talk.jsonl"
    turns = [part for line in lines for part in ({"type": "turn"}, line)]
    script.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in turns))
    agent: str = shell.script(str(script), "--name", "talk")
    return agent


SLEEP = {"type": "sleep", "seconds": 60}
FAIL = {"type": "error", "kind": "rate-limited", "message": "later"}
DONE = {
    "type": "block_complete", "blockId": "t", "conversationId": "main",
    "block": {"type": "assistant_text", "id": "t", "content": "done"},
}  # fmt: skip


def started(shell: Any, agent: str) -> str:
    """Begin a turn in another process, and return the message's id when it runs."""
    sent = shell.process("send", "--no-wait", agent, "go", stdout=subprocess.PIPE)
    message: str = sent.stdout.strip()
    turn = shell.folder(agent) / ".turn"
    until(lambda: locks.is_held(turn) and b"turn.start" in log(shell, agent), "the turn runs")
    return message


@contextmanager
def killed(process: Any) -> Iterator[Any]:
    """Have a process ended, with its output closed, when the block is over."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def keeps_open(process: Any, name: str) -> bool:
    """Return whether a process has a file of this name open, now and a moment later."""
    return all(has_open(process.pid, name) for _ in range(10) if not time.sleep(0.02))


def has_open(pid: int, name: str) -> bool:
    """Return whether a process has a file of this name open."""
    with suppress(OSError):
        links = Path(f"/proc/{pid}/fd").iterdir()
        return any(link.readlink().name == name for link in links)
    return False


def waiter(shell: Any, *operands: str) -> Any:
    """Begin to wait in another process."""
    return killed(shell.start("wait", *operands, "--json"))


def log(shell: Any, agent: str) -> bytes:
    """Return the bytes of an agent's log."""
    data: bytes = (shell.folder(agent) / "events.jsonl").read_bytes()
    return data


def test_what_has_ended_already_counts(shell: Any) -> None:
    """A message by how its turn ended; an agent without anything to do is not waited for."""
    agent = talk(shell, DONE, FAIL)
    good = shell.ok("send", agent, "one", "--json").json["messageId"]
    assert shell("send", agent, "two").code == 14
    bad = next(
        record["data"]["message_id"]
        for record in reversed(shell.log(agent))
        if record["event"] == "message.enqueued"
    )

    assert shell.ok("wait", good, "--json").json["outcome"] == "completed"
    done = shell("wait", bad)
    assert (done.code, done.out, done.err) == (14, "", "agentsdir: later\n")
    row = shell("wait", bad, "--json").rows[0]
    assert (row["agentId"], row["messageId"], row["outcome"]) == (agent, bad, "failed")
    assert row["error"] == {"kind": "rate-limited", "message": "later"}
    assert shell.ok("wait", agent).out == ""
    assert shell.ok("wait").out == ""
    assert shell("wait", good, bad).code == 14


def test_a_turn_that_runs_is_waited_for(shell: Any) -> None:
    """By its agent, by its message, and without an operand, until it ends."""
    agent = talk(shell, SLEEP)
    message = started(shell, agent)
    with ExitStack() as stack:
        given = ([agent], [message], [])
        waits = [stack.enter_context(waiter(shell, *which)) for which in given]
        for process in waits:
            until(lambda process=process: keeps_open(process, "events.jsonl"), "it waits")
        shell.ok("interrupt", agent)
        said = [process.communicate(timeout=60)[0] for process in waits]
    assert [process.returncode for process in waits] == [14, 14, 14]
    for out in said:
        row = orjson.loads(out.split(b"\n")[0])
        assert (row["agentId"], row["error"]["kind"]) == (agent, "turn-aborted")


def test_what_waits_in_the_inbox_is_waited_for_with_the_agent(shell: Any) -> None:
    """In the order of the log; the first failure gives the code."""
    agent = talk(shell, DONE, FAIL, DONE)
    for prompt in ("one", "two", "three"):
        shell.ok("queue", agent, prompt)
    with waiter(shell, agent) as process:
        until(lambda: keeps_open(process, "events.jsonl"), "it waits")
        shell("send", "--no-message", agent)
        out = process.communicate(timeout=60)[0]
    rows = [orjson.loads(line) for line in out.split(b"\n") if line.startswith(b'{"type":"ended"')]
    assert [row["outcome"] for row in rows] == ["completed", "failed", "completed"]
    assert process.returncode == 14


def test_subagents_in_the_background_are_waited_for_with_their_parent(shell: Any) -> None:
    """Until each has ended, and a turn of the parent has taken each answer."""
    lead = shell.new("--name", "lead")
    slow = shell.cwd / "slow.jsonl"
    lines = [{"type": "sleep", "seconds": 1}, DONE]
    slow.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    script = ["--provider", "script", "--option", f"file={slow}"]
    for name in ("x", "y"):
        spawn = ["spawn", "--detach", "--parent", lead, "--name", name, *script, "look"]
        shell.process(*spawn, stdout=subprocess.PIPE)
    assert b"turn.start" not in log(shell, lead)

    done = shell("wait", "lead", "--json")

    assert (done.code, [row["agentId"] for row in done.rows]) == (0, [lead, lead])
    taken = [r["data"]["message_ids"] for r in shell.log(lead) if r["event"] == "turn.start"]
    assert sorted([row["messageId"]] for row in done.rows) == sorted(taken)
    assert shell.ok("wait", "lead").out == ""


def test_a_subagent_that_no_process_runs_is_given_up(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 13, `not-running`, in the name of the subagent."""
    monkeypatch.setattr(waiting, "START_PATIENCE", 0.05)
    lead = shell.new()
    talker = shell.cwd / "sleep.jsonl"
    talker.write_bytes(orjson.dumps(SLEEP) + b"\n")
    script = ["--provider", "script", "--option", f"file={talker}"]
    with killed(shell.start("spawn", "--parent", lead, *script, "look")):
        until(lambda: b'"running"' in log(shell, lead), "the subagent runs")
    done = shell("wait", lead, "--json")
    assert (done.code, done.error["kind"]) == (13, "not-running")
    assert done.rows[0]["agentId"] in done.error["message"]
    assert done.rows[0]["agentId"] != lead


def test_an_answer_that_comes_after_a_subagents_end_is_waited_for(shell: Any) -> None:
    """Also where the wait begins between the two: the subagent's process still has its `.turn`."""
    agent = shell.new()
    lead = AgentPaths(shell.folder(agent), agent)
    child = shell.ok("spawn", "--parent", agent, "--json", "look").json["agentId"]
    answer = {
        "message_id": "m" * 24,
        "sender": child,
        "kind": "agent",
        "content": [{"type": "text", "text": "seen"}],
    }
    with locks.hold(shell.folder(child) / ".turn"):
        watch = waiting.Watch.of_agent(lead)
        assert watch is not None
        watch.poll()
        assert watch.waits
        with write_agent(lead) as writer:
            writer.append("message.enqueued", answer, "2026-01-02T03:04:05.678900Z")
    watch.poll()
    assert watch.waits
    shell.ok("send", agent, "--no-message")
    (ended,) = waiting.wait_for([watch], time.sleep)
    watch.close()
    assert (ended.message_id, ended.error) == ("m" * 24, None)


def test_a_later_turn_of_a_subagent_is_not_waited_for(shell: Any) -> None:
    """Nor is a `.turn` that a process holds once the answer is there."""
    agent = shell.new()
    lead = AgentPaths(shell.folder(agent), agent)
    spawning = ("spawn", "--parent", agent, "--detach", "look")
    first = shell.process(*spawning, stdout=subprocess.PIPE).stdout.strip()
    shell.ok("wait", agent)
    with locks.hold(shell.folder(first) / ".turn"):
        assert waiting.Watch.of_agent(lead) is None
    script = shell.cwd / "talk.jsonl"
    lines = [{"type": "turn"}, DONE, {"type": "turn"}, SLEEP]
    script.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    given = ["--provider", "script", "--option", f"file={script}", "--json"]
    second = shell.ok("spawn", "--parent", agent, *given, "look").json["agentId"]
    started(shell, second)
    until(lambda: log(shell, second).count(b'"turn.start"') == 2, "the later turn runs")
    assert waiting.Watch.of_agent(lead) is None
    shell.ok("interrupt", second)


def test_a_timeout_ends_the_wait_and_nothing_else(shell: Any) -> None:
    """Exit 124, `wait-timeout`; the turn goes on."""
    agent = talk(shell, SLEEP)
    message = started(shell, agent)
    busy = shell("send", "--wait", "0", agent, "hi")
    assert (busy.code, "a turn of talk runs" in busy.err) == (11, True)
    done = shell("wait", "--timeout", "0.1", message, "--json")
    assert (done.code, done.error["kind"]) == (124, "wait-timeout")
    assert locks.is_held(shell.folder(agent) / ".turn")
    shell.ok("interrupt", agent)


def test_a_message_that_no_process_runs_is_given_up(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 13, `not-running`, with what runs it."""
    monkeypatch.setattr(waiting, "START_PATIENCE", 0.05)
    agent = shell.new()
    message = shell.ok("queue", agent, "later").out.strip()
    for operand in (agent, message):
        done = shell("wait", operand, "--json")
        assert (done.code, done.error["kind"]) == (13, "not-running")
        assert "--no-message" in done.error["hint"]


def test_a_message_of_a_closed_agent_is_settled(shell: Any) -> None:
    """Exit 13, `closed`."""
    agent = shell.new()
    message = shell.ok("queue", agent, "later").out.strip()
    shell.ok("close", agent)
    done = shell("wait", message, "--json")
    assert (done.code, done.error["kind"]) == (13, "closed")


def test_a_turn_whose_process_dies_is_given_up(shell: Any) -> None:
    """Exit 14, with what ends the turn."""
    agent = talk(shell, SLEEP)
    with killed(shell.start("send", agent, "go")) as sender:
        until(lambda: b"turn.start" in log(shell, agent), "the turn runs")
        watch = waiting.Watch.of_agent(AgentPaths(shell.folder(agent), agent))
        sender.kill()
        sender.wait()
    assert watch is not None
    (ended,) = waiting.wait_for([watch], time.sleep)
    watch.close()

    assert (str(ended.error).endswith("its process died"), ended.error.kind) == (
        True,
        "turn-aborted",
    )
    shell.ok("restore", agent)


def test_an_ephemeral_agent_that_is_gone_at_once_has_ended(shell: Any) -> None:
    """Its log is open while it is waited for, so that its end is seen."""
    script = shell.cwd / "talk.jsonl"
    slow = [{"type": "sleep", "seconds": 1}, DONE]
    script.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in slow))
    given = ["send", "--ephemeral", "--provider", "script", "--option", f"file={script}", "go"]
    with killed(shell.start(*given)) as sender:
        running = until(lambda: agent_in_a_turn(shell.root), "its turn runs")
        done = shell("wait", running.id, "--json")
        assert sender.wait(timeout=60) == 0
    assert (done.code, done.rows[0]["outcome"]) == (0, "completed")
    assert not os.path.lexists(running.folder)


def agent_in_a_turn(root: Path) -> AgentPaths | None:
    """Return the first agent of a root whose turn has begun."""
    for agent_id in Layout(root).agent_ids():
        paths = AgentPaths(root / "agents" / agent_id, agent_id)
        if b"turn.start" in paths.log.read_bytes():
            return paths
    return None


def test_an_agent_is_not_waited_for_in_its_own_turn(shell: Any) -> None:
    """Exit 13, `in-turn`; without operands its turn is left out."""
    agent = talk(shell, SLEEP)
    message = started(shell, agent)
    assert message
    turn = next(r["data"]["turn_id"] for r in shell.log(agent) if r["event"] == "turn.start")
    root = str(shell.root.resolve())
    shell.variables = {"AGENTSDIR_ROOT": root, "AGENTSDIR_AGENT": agent, "AGENTSDIR_TURN": turn}
    done = shell("wait", agent, "--json")
    assert (done.code, done.error["kind"]) == (13, "in-turn")
    assert shell.ok("wait").out == ""
    shell.variables = {}
    shell.ok("interrupt", agent)


def test_a_word_that_names_nothing_is_refused(shell: Any) -> None:
    """Exit 10 for what could be an agent or a message."""
    shell.new()
    for word in ("nowhere", "a" * 24):
        assert shell("wait", word).code == 10
    assert shell("wait", "--timeout", "nan").code == 2
