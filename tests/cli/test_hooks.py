"""The user's hooks around messages, turns and agents (docs/configuration.md, "Hooks")."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

import agentsdir
from agentsdir.cli import hooks
from agentsdir.schemas import check

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
PERSON = ("--connector", "irc", "--user", "ada", "--channel", "#c")
CANCELLED, FAILED, LOCKED = 13, 1, 11


def install(shell: Any, name: str, body: str, *, agent: str = "", mode: int = 0o700) -> Path:
    """Write a hook: for all agents, or for one. It keeps what it reads in a file."""
    folder: Path = shell.home / ".config" / "agentsdir" / "hooks"
    path = (folder / "agents" / agent if agent else folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nkept={shlex.quote(str(shell.home / name))}\n{body}\n")
    path.chmod(mode)
    return path


KEEP = 'cat >> "$kept"'


def read(shell: Any, name: str) -> list[dict[str, Any]]:
    """Return the documents that the hook of this name was given."""
    path = shell.home / name
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def events(shell: Any, agent: str) -> list[str]:
    """Return the events of an agent's log."""
    return [record["event"] for record in shell.log(agent)]


def failures(shell: Any, agent: str) -> list[str]:
    """Return the hooks whose failure an agent's log has."""
    return [
        record["data"]["hook"] for record in shell.log(agent) if record["event"] == "hook.failed"
    ]


def new(shell: Any, *arguments: str) -> str:
    """Make an agent; a hook may have failed by that."""
    agent: str = shell("new", *arguments).out.strip()
    return agent


def failing(shell: Any, *arguments: str) -> str:
    """Make an agent whose turns fail."""
    script = shell.home / "fails.jsonl"
    script.write_text('{"type":"error","kind":"boom","message":"it broke"}\n')
    return new(shell, "--provider", "script", "--option", f"file={script}", *arguments)


class Case(NamedTuple):
    """One hook: what sets it off, which agent that is about, and what its document has."""

    name: str
    act: Callable[[Any], str]
    document: dict[str, Any]
    code: int = 0


def send(shell: Any) -> str:
    """Send one message to a new agent."""
    agent = new(shell, "--name", "fox")
    shell("send", agent, "hi")
    return agent


def send_to_failing(shell: Any) -> str:
    """Send one whose turn fails."""
    agent = failing(shell, "--name", "fox")
    shell("send", agent, "hi")
    return agent


def close(shell: Any) -> str:
    """Close a new agent, and close it again."""
    agent = new(shell, "--name", "fox")
    shell("close", agent)
    shell("close", agent)
    return agent


HI = [{"type": "text", "text": "hi"}]
CASES = [
    Case("before-send", send, {"sender": "cli", "content": HI, "message_id": None}),
    Case("after-send", send, {"error": None}),
    Case("complete", send, {}),
    Case("error", send_to_failing, {"error": {"kind": "boom", "message": "it broke"}}),
    Case("session-create", send, {"origin": "new", "provider": "echo", "model": "echo-1"}),
    Case("session-close", close, {"reason": "close"}),
]
each_hook = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
LISTENING = [case for case in CASES if case.name != "before-send"]
each_listening = pytest.mark.parametrize("case", LISTENING, ids=lambda case: case.name)


@pytest.mark.feature("A-07")
@each_hook
def test_a_hook_reads_one_document_of_its_schema_once(shell: Any, case: Case) -> None:
    """It says whose occasion it is, and of what."""
    install(shell, case.name, KEEP)

    agent = case.act(shell)

    (document,) = read(shell, case.name)
    assert check(f"hook-{case.name}", document) == []
    common = {"hook": case.name, "root": str(shell.root), "agent_id": agent, "name": "fox"}
    state = orjson.loads((shell.folder(agent) / "state.json").read_bytes())
    common |= {"session_id": state["sessionId"], "cwd": str(shell.cwd)}
    expected = {**common, **case.document}
    assert {name: document[name] for name in expected} == expected
    assert failures(shell, agent) == []


@pytest.mark.feature("A-07")
@each_hook
def test_no_hook_for_all_runs_for_a_subagent_but_one_of_its_own_does(
    shell: Any, case: Case
) -> None:
    """Callbacks of a parent are not for its children (seed app-and-session)."""
    parent = shell.new("--name", "boss")
    install(shell, case.name, KEEP)
    script = shell.home / "fails.jsonl"
    script.write_text('{"type":"error","kind":"boom","message":"it broke"}\n')
    how = ["--provider", "script", "--option", f"file={script}"] if case.name == "error" else []

    for name in ("one", "two"):
        shell("spawn", "look", "--parent", parent, "--name", name, *how)
        shell("send", f"{name}", "again")
        shell("close", name)
        if name == "one":
            assert read(shell, case.name) == []
            install(shell, case.name, KEEP, agent="two")

    assert {document["name"] for document in read(shell, case.name)} == {"two"}


@pytest.mark.feature("A-07")
@each_listening
@pytest.mark.parametrize("body", ["cat; echo why >&2; exit 3", "kill -9 $$", "sleep 30"])
def test_a_hook_that_listens_and_fails_is_said_and_recorded_and_blocks_nothing(
    shell: Any, case: Case, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its exit, by a signal, or because it takes too long."""
    monkeypatch.setitem(hooks.TIME_LIMITS, case.name, 0.3)
    without = case.act(shell)
    expected = events(shell, without)
    shell.ok("rm", "--yes", without) if case.name == "session-close" else shell.ok("close", without)
    install(shell, case.name, body)

    agent = case.act(shell)

    found = events(shell, agent)
    assert [event for event in found if event != "hook.failed"] == expected
    # The log of a closed agent takes none.
    assert failures(shell, agent) == ([] if case.name == "session-close" else [case.name])


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ("exit 0", "hi"),
        ("""echo '{"content":"ho"}'""", "ho"),
        ("""echo '{"content":[{"type":"text","text":"he"}]}'""", "he"),
    ],
)
@pytest.mark.parametrize("command", ["send", "queue", "interrupt", "no-wait", "in a turn"])
@pytest.mark.feature("A-07")
def test_before_send_changes_what_is_sent(shell: Any, body: str, sent: str, command: str) -> None:
    """Whichever command sends it."""
    agent = shell.new()
    install(shell, "before-send", body)

    _send(shell, agent, command)

    (record,) = [record for record in shell.log(agent) if record["event"] == "message.enqueued"]
    assert record["data"]["content"] == [{"type": "text", "text": sent}]


def _send(shell: Any, agent: str, command: str) -> tuple[int, str]:
    """Send in one of four ways; return the exit code and what was said on stderr."""
    if command == "no-wait":
        return _send_in_background(shell, agent)
    if command == "in a turn":
        done = _in_a_turn(shell, "send", agent, "hi")
    else:
        done = shell(command, agent, "hi")
    return done.code, done.err


def _send_in_background(shell: Any, agent: str) -> tuple[int, str]:
    done = shell.process("send", agent, "hi", "--no-wait")
    if done.returncode == 0:
        shell.ok("wait", agent)
    return done.returncode, done.stderr


def _in_a_turn(shell: Any, *arguments: str) -> Any:
    """Run a command as a tool call of another agent's turn does; return how it ended."""
    sender = shell.new()
    turn = "t" * 24
    from agentsdir.formats.store import locks
    from agentsdir.formats.store.agent import write_agent
    from agentsdir.formats.store.layout import AgentPaths

    paths = AgentPaths(shell.folder(sender), sender)
    now = "2026-01-02T03:04:05Z"
    with write_agent(paths) as writer:
        change = {"from": "created", "to": "active", "reason": "send"}
        writer.append("session.state", change, now)
        start = {"turn_id": turn, "message_ids": [], "provider": "echo", "attempt": 1}
        writer.append("turn.start", start, now)
    shell.variables |= {"AGENTSDIR_AGENT": sender, "AGENTSDIR_TURN": turn}
    try:
        with locks.hold(paths.turn):
            return shell(*arguments)
    finally:
        del shell.variables["AGENTSDIR_AGENT"], shell.variables["AGENTSDIR_TURN"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("""echo '{"cancel":"not on a Sunday"}'""", "not on a Sunday"),
        ("""echo '{"cancel":""}'""", "said no"),
        ("echo 'no keys, please' >&2; exit 1", "no keys, please"),
        ("exit 7", "exited 7"),
    ],
)
@pytest.mark.parametrize("command", ["send", "queue", "interrupt", "no-wait", "in a turn"])
@pytest.mark.feature("A-07")
def test_before_send_that_says_no_leaves_the_log_as_it_is(
    shell: Any, body: str, reason: str, command: str
) -> None:
    """The command says the reason."""
    agent = shell.new()
    before = (shell.folder(agent) / "events.jsonl").read_bytes()
    install(shell, "before-send", body)

    code, said = _send(shell, agent, command)

    assert code == CANCELLED
    assert reason in said
    assert (shell.folder(agent) / "events.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "body",
    [
        "kill -9 $$",
        "sleep 30",
        "echo {",
        "echo '{}'",
        "echo '{\"content\":[7]}'",
        # A no that is not said as one; it must not count as a yes.
        'echo \'{"cancel":true,"content":"hi"}\'',
    ],
)
@pytest.mark.feature("A-07")
def test_before_send_that_fails_sends_nothing_and_is_recorded(
    shell: Any, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be what keeps secrets out of prompts."""
    monkeypatch.setitem(hooks.TIME_LIMITS, "before-send", 0.3)
    agent = shell.new()
    install(shell, "before-send", body)

    done = shell("send", agent, "hi", "--json")

    assert (done.code, done.error["kind"]) == (FAILED, "hook-failed")
    assert events(shell, agent) == ["session.created", "hook.failed"]


@each_hook
@pytest.mark.parametrize("mode", [0o600, 0o722])
def test_a_file_that_is_no_hook_of_ones_own_is_not_passed_over(
    shell: Any, case: Case, mode: int
) -> None:
    """It has failed."""
    path = install(shell, case.name, KEEP, mode=mode)
    assert stat.S_IMODE(path.stat().st_mode) == mode

    agent = case.act(shell)

    assert read(shell, case.name) == []
    assert failures(shell, agent) == ([] if case.name == "session-close" else [case.name])


@each_hook
def test_an_agent_may_have_a_hook_of_its_own_by_its_name(shell: Any, case: Case) -> None:
    """It runs in place of the one for all."""
    install(shell, case.name, "exit 1")
    install(shell, case.name, KEEP, agent="fox")

    agent = case.act(shell)

    assert len(read(shell, case.name)) == 1
    assert failures(shell, agent) == []


@each_listening
def test_no_hook_runs_in_a_root_that_is_not_trusted(shell: Any, case: Case) -> None:
    """Even one of the user's own would be given what a stranger's log says."""
    agent = shell.new("--name", "fox")
    shell.root.rename(shell.cwd / ".agentsdir")
    shell.root = shell.cwd / ".agentsdir"
    shell.variables["AGENTSDIR_ROOT"] = ""
    install(shell, case.name, KEEP)

    shell("new", "--name", "other")
    shell("send", agent, "hi")
    shell("close", agent)

    assert read(shell, case.name) == []


def test_an_agent_that_was_imported_has_hooks_by_its_id_alone(shell: Any, tmp_path: Path) -> None:
    """Its name came with the bundle, and a stranger chose it."""
    agent = new(shell, "--name", "deployer")
    bundle = tmp_path / "deployer.tar"
    assert shell("export", "--bundle", "deployer", str(bundle)).code == 0
    assert shell("rm", "deployer", "--yes").code == 0
    assert shell("import", str(bundle)).code == 0
    install(shell, "complete", KEEP, agent="deployer")
    assert shell("send", "deployer", "hi").code == 0
    assert read(shell, "complete") == []

    install(shell, "complete", KEEP, agent=agent)
    assert shell("send", "deployer", "hi").code == 0
    assert len(read(shell, "complete")) == 1


@pytest.mark.parametrize("command", ["send", "queue"])
def test_with_before_send_nothing_is_left_in_a_root_that_is_not_trusted(
    shell: Any, command: str
) -> None:
    """The hook may keep back what is no stranger's business, and does not run there."""
    agent = shell.new()
    shell.root.rename(shell.cwd / ".agentsdir")
    shell.root = shell.cwd / ".agentsdir"
    shell.variables["AGENTSDIR_ROOT"] = ""
    before = events(shell, agent)
    install(shell, "before-send", KEEP)

    done = shell(command, agent, "hi", "--json")

    assert (done.code, done.error["kind"]) == (14, "untrusted-root")
    assert (read(shell, "before-send"), events(shell, agent)) == ([], before)


@pytest.mark.parametrize("hook", ["before-send", "after-send", "complete"])
def test_what_a_hook_sends_to_its_own_agent_is_refused_and_to_another_is_not(
    shell: Any, hook: str
) -> None:
    """And no hook of the agent runs again by it; else this would never end."""
    agent, other = shell.new("--name", "fox"), shell.new("--name", "owl")
    command = f"{sys.executable} -m agentsdir.cli.main"
    env = {**os.environ, **shell.environment()}
    shell.variables |= {name: env[name] for name in ("PATH", "HOME") if name in env}
    log = shlex.quote(str(shell.home / "codes"))
    install(
        shell,
        hook,
        f"{KEEP}\n"
        f'{command} send {agent} again >/dev/null 2>&1; echo "self $?" >> {log}\n'
        f'{command} queue {agent} later >/dev/null 2>&1; echo "queue $?" >> {log}\n'
        f'{command} send {other} hi >/dev/null 2>&1; echo "other $?" >> {log}\n',
        agent="fox",
    )

    shell("send", agent, "hi")

    codes = (shell.home / "codes").read_text().splitlines()
    assert codes == [f"self {LOCKED}", "queue 0", "other 0"]
    assert len(read(shell, hook)) == 1


def test_a_hook_for_new_agents_may_make_one(shell: Any) -> None:
    """It does not run for that one."""
    command = f"{sys.executable} -m agentsdir.cli.main"
    install(shell, "session-create", f"{KEEP}\n{command} new --name second >/dev/null")
    shell.variables |= shell.environment()

    shell("new", "--name", "first")

    assert [document["name"] for document in read(shell, "session-create")] == ["first"]
    assert sorted(row["name"] for row in shell.ok("list", "--json").rows) == ["first", "second"]


def test_a_message_sent_again_by_its_id_is_not_asked_about_again(shell: Any) -> None:
    """The hook may say another thing each time, and the message is the one that was queued."""
    agent, message = shell.new(), "m" * 24
    install(
        shell, "before-send", 'echo x >> "$kept"\necho "{\\"content\\":\\"$(wc -l < "$kept")\\"}"'
    )

    for _ in range(2):
        assert shell("send", agent, "hi", "--message-id", message).code == 0

    assert events(shell, agent).count("message.enqueued") == 1
    assert (shell.home / "before-send").read_text() == "x\n"


def test_a_turn_that_another_process_runs_has_each_hook_once(shell: Any) -> None:
    """As that of `send --no-wait`."""
    for name in ("before-send", "after-send", "complete", "error"):
        install(shell, name, KEEP)
    agent = shell.new()

    _send_in_background(shell, agent)

    counts = {
        name: len(read(shell, name)) for name in ("before-send", "after-send", "complete", "error")
    }
    assert counts == {"before-send": 1, "after-send": 1, "complete": 1, "error": 0}


def test_messages_of_an_inbox_have_each_hook_once(shell: Any) -> None:
    """Whichever command put them there, and whichever runs them."""
    install(shell, "after-send", KEEP)
    install(shell, "complete", KEEP)
    agent = shell.new()

    for text in ("one", "two"):
        shell("queue", agent, text)
    shell("send", agent, "three")
    shell("send", agent, "--no-message")  # a turn without a message was not sent

    said = [document["turn"]["response"] for document in read(shell, "after-send")]
    assert [re.sub(r"\W+", "", text)[-5:] for text in said] == ["one", "two", "three"]
    assert len(read(shell, "complete")) == 4


@pytest.mark.parametrize("first", [["restore"], ["send", "--no-message"], ["reset"], ["close"]])
def test_a_turn_that_died_with_its_process_has_its_error_from_the_next(
    shell: Any, first: list[str]
) -> None:
    """Once, by whatever command ends the turn."""
    from agentsdir.formats.store.agent import write_agent
    from agentsdir.formats.store.layout import AgentPaths

    agent = shell.new()
    paths = AgentPaths(shell.folder(agent), agent)
    now, turn, message = "2026-01-02T03:04:05Z", "t" * 24, "m" * 24
    with write_agent(paths) as writer:
        said = {"message_id": message, "sender": "cli", "kind": "user", "content": HI}
        writer.append("message.enqueued", said, now)
        change = {"from": "created", "to": "active", "reason": "send"}
        writer.append("session.state", change, now)
        start = {"turn_id": turn, "message_ids": [message], "provider": "echo", "attempt": 1}
        writer.append("turn.start", start, now)
    install(shell, "error", KEEP)
    install(shell, "after-send", KEEP)

    shell(*first, *([] if first == ["restore"] else [agent]))
    shell("restore")
    shell("send", agent, "--no-message")

    for name in ("error", "after-send"):
        (document,) = read(shell, name)
        assert check(f"hook-{name}", document) == []
        assert document["turn"]["turnId"] == turn
        assert document["turn"]["outcome"] == "failed"
        assert document["error"] == {
            "kind": "turn-aborted",
            "message": "the turn was aborted: crash",
        }


def test_a_closed_parent_closes_its_subagents_and_each_is_heard_of(shell: Any) -> None:
    """With the reason, by the hook of each."""
    parent = shell.new("--name", "boss")
    shell("spawn", "look", "--parent", parent, "--name", "one")
    install(shell, "session-close", KEEP)
    install(shell, "session-close", KEEP, agent="one")

    shell("close", parent)

    said = [(one["name"], one["reason"]) for one in read(shell, "session-close")]
    assert said == [("boss", "close"), ("one", "parent")]


def test_an_ephemeral_agent_is_created_and_closed_once(shell: Any) -> None:
    """Its removal is its close."""
    install(shell, "session-create", KEEP)
    install(shell, "session-close", KEEP)

    shell("send", "--ephemeral", "hi")

    (made,), (closed,) = read(shell, "session-create"), read(shell, "session-close")
    assert made["agent_id"] == closed["agent_id"]
    assert closed["reason"] == "finished"


@pytest.mark.parametrize(
    ("hook", "act"),
    [
        ("forked", lambda shell: shell("fork", shell.new("--name", "fox"))),
        ("new", lambda shell: shell("send", *PERSON, "--", "hi")),
        ("new", lambda shell: shell("new", "--name", "fox", "--get")),
    ],
)
def test_each_way_to_make_an_agent_runs_session_create(
    shell: Any, hook: str, act: Callable[[Any], Any]
) -> None:
    """What finds the agent that is there does not."""
    install(shell, "session-create", KEEP)

    act(shell)
    count = len(read(shell, "session-create"))
    if hook == "new":
        act(shell)

    assert read(shell, "session-create")[-1]["origin"] == hook
    assert len(read(shell, "session-create")) == count


def test_without_hooks_the_folder_is_looked_at_once(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn has six occasions for one."""
    looked = []
    there = hooks._folder

    def folder(env: Any) -> Path:
        looked.append(1)
        return there(env)

    monkeypatch.setattr(hooks, "_folder", folder)

    shell("send", shell.new(), "hi")

    assert len(looked) == 2  # one command each


def _example(name: str) -> str:
    (body,) = re.findall(
        rf"^```\w+ hook={name}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    return str(body)


def test_the_examples_of_the_page_work(shell: Any) -> None:
    """As they stand there."""
    for name in ("before-send", "error"):
        install(shell, name, "").write_text(_example(name))
    shell.variables |= {"HOME": str(shell.home), "PATH": os.environ["PATH"]}
    agent = failing(shell)

    shell("send", agent, "my key is sk-123")

    (record,) = [record for record in shell.log(agent) if record["event"] == "message.enqueued"]
    assert record["data"]["content"] == [{"type": "text", "text": "my key is [removed]"}]
    assert (shell.home / "agent-errors.txt").read_text() == f"{agent} boom: it broke\n"


def test_what_a_hook_sends_in_the_background_runs_without_the_hooks_of_its_agent(
    shell: Any,
) -> None:
    """The hook does not wait for it, so it is not refused; and the chain ends."""
    agent = shell.new()
    install(shell, "complete", KEEP)
    shell.variables |= {"AGENTSDIR_HOOK": agent, "AGENTSDIR_HOOKED": agent}
    environment = shell.environment()
    environment |= {"AGENTSDIR_HOOK": agent, "AGENTSDIR_HOOKED": agent}

    done = subprocess.run(
        [sys.executable, "-m", "agentsdir.cli.main", "send", agent, "hi", "--no-wait"],
        env=environment,
        cwd=shell.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=True,
    )
    shell.ok("wait", agent)

    assert done.stderr == b""
    assert events(shell, agent).count("turn.complete") == 1
    assert read(shell, "complete") == []


SENDING = ("before-send", "complete", "after-send")


def counts(shell: Any, agent: str) -> list[int]:
    """Return how often each hook around a message was run for an agent."""
    return [
        sum(document["agent_id"] == agent for document in read(shell, name)) for name in SENDING
    ]


def test_the_line_protocol_and_so_the_prompt_run_each_hook_once(shell: Any) -> None:
    """`chat` queues what is typed, and then runs it."""
    for name in (*SENDING, "session-create"):
        install(shell, name, KEEP)

    _request(shell, {"id": 1, "verb": "new", "options": {"name": "fox"}})
    _request(shell, {"id": 1, "verb": "send", "args": ["fox", "hi"]})
    _request(shell, {"id": 1, "verb": "queue", "args": ["fox"], "stdin": "again"})
    _request(shell, {"id": 1, "verb": "send", "args": ["fox"], "options": {"no-message": True}})

    (made,) = read(shell, "session-create")
    assert counts(shell, made["agent_id"]) == [2, 2, 2]


def _request(shell: Any, request: dict[str, Any]) -> None:
    given = f"{json.dumps(request)}\n"
    done = shell.process("chat", "--jsonl", stdin=None, input=given, stdout=subprocess.PIPE)
    answers = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert [one["exit"] for one in answers if "exit" in one] == [0], done


def test_an_app_runs_each_hook_once_and_its_callbacks_before_it(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's hook has the last word about a message."""
    monkeypatch.setenv("HOME", str(shell.home))
    for name in ("after-send", "complete", "session-create", "session-close"):
        install(shell, name, KEEP)
    tag = 'sed "s/.*\\"text\\":\\"\\([^\\"]*\\)\\".*/{\\"content\\":\\"\\1, hook\\"}/"'
    install(shell, "before-send", f'tee -a "$kept" | {tag}')
    callbacks = agentsdir.Callbacks(
        on_before_send=lambda _session, content: content[0]["text"] + ", callback"
    )
    config = agentsdir.AgentConfig(provider="echo")

    with agentsdir.App(config, root=shell.root, callbacks=callbacks) as app:
        session = app.session()
        assert session.send("hi").result.response == "hi, callback, hook"
        session.queue("later")
        session.close()

    assert counts(shell, session.id) == [2, 1, 1]
    assert len(read(shell, "session-create")) == len(read(shell, "session-close")) == 1


def test_an_app_gets_the_no_of_a_hook_from_the_result(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an error with a kind."""
    monkeypatch.setenv("HOME", str(shell.home))
    install(shell, "before-send", """echo '{"cancel":"not on a Sunday"}'""")

    with agentsdir.App(agentsdir.AgentConfig(provider="echo"), root=shell.root) as app:
        execution = app.session().send("hi")
        with pytest.raises(agentsdir.SessionStateError, match="not on a Sunday") as refused:
            assert execution.result

    assert refused.value.kind == "cancelled"
