"""`agentsdir spawn`, as a person, a script and a turn's program meet it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from commands import until

from agentsdir.cli.services import StartedProcess
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.state import AgentState
from agentsdir.schemas import check

LONG = 60.0
TURN = "t" * 24


def paths_of(shell: Any, agent: str) -> AgentPaths:
    """Return an agent's paths."""
    return AgentPaths(shell.folder(agent), agent)


def state_of(shell: Any, agent: str) -> AgentState:
    """Return an agent's state."""
    return read_agent(paths_of(shell, agent)).state


def records(shell: Any, agent: str, *events: str) -> list[dict[str, Any]]:
    """Return the data of an agent's records of some events."""
    lines = (shell.folder(agent) / "events.jsonl").read_bytes().splitlines()
    log = [orjson.loads(line) for line in lines]
    return [record["data"] for record in log if record["event"] in events]


def children(shell: Any, parent: str) -> list[str]:
    """Return the agents that are there beside the parent."""
    found = (path.name for path in (shell.root / "agents").iterdir())
    return sorted(name for name in found if name != parent)


@contextmanager
def in_turn(shell: Any, agent: str) -> Iterator[None]:
    """Be the program of a turn of an agent."""
    paths = paths_of(shell, agent)
    now = "2026-01-02T03:04:05.678900Z"
    with hold_turn(paths):
        with write_agent(paths) as writer:
            start = {"turn_id": TURN, "message_ids": [], "provider": "echo", "attempt": 1}
            writer.append("session.state", {"from": "created", "to": "active", "reason": "x"}, now)
            writer.append("turn.start", start, now)
        marks = {"ROOT": str(shell.root.resolve()), "AGENT": agent, "TURN": TURN}
        shell.variables.update({f"AGENTSDIR_{name}": value for name, value in marks.items()})
        yield
        with write_agent(paths) as writer:
            writer.append("turn.aborted", {"turn_id": TURN, "reason": "interrupt"}, now)


@pytest.mark.feature("A-02", "A-05", "T-04")
def test_outside_a_turn_the_answer_is_printed_and_stands_in_the_parents_block(shell: Any) -> None:
    """As `send` prints it; the parent has no turn of it."""
    parent = shell.new("--name", "boss")
    assert shell.ok("spawn", "count the foxes", "--parent", "boss").out == "count the foxes\n"
    (child,) = children(shell, parent)
    blocks = [data["block"] for data in records(shell, parent, "block")]
    assert [block["status"] for block in blocks] == ["pending", "running", "success"]
    assert blocks[-1]["output"] == "count the foxes"
    spawned = records(shell, parent, "agent.spawned")
    assert [data["status"] for data in spawned] == ["running", "success"]
    assert records(shell, parent, "message.enqueued", "turn.start") == []
    name = state_of(shell, child).name
    assert name == f"subagent-{child[-6:]}"
    rows = {row["agentId"]: row for row in shell.ok("list").rows}
    assert rows[child]["descriptor"]["parentAgentId"] == parent


def test_the_answer_as_events_or_as_one_document(shell: Any) -> None:
    """Which names the subagent, and has the turn as `send --json` says it."""
    parent = shell.new()
    events = shell.ok("spawn", "hi", "--parent", parent, "--events").rows
    assert [event["type"] for event in events if event["type"] == "text_delta"] == ["text_delta"]
    said = shell.ok("spawn", "hi", "--parent", parent, "--name", "fox", "--json").json
    assert check("spawned", said) == []
    assert (said["name"], said["status"], said["parentAgentId"]) == ("fox", "success", parent)
    assert said["turn"]["response"] == "hi"
    assert said["agentId"] in children(shell, parent)


@pytest.mark.feature("A-05")
def test_an_agent_file_says_what_it_is_and_the_command_line_goes_before_it(shell: Any) -> None:
    """Its props are filled in, its name is made of the file's."""
    parent = shell.new()
    (shell.cwd / "researcher.toml").write_text(
        'provider = "echo"\nmodel = "m"\nsystem = "You know {{topic}}."\n'
        'prompt = "Find {{n}} {{topic}}"\nmax_ticks = 3\n[props]\nn = 2\n'
    )
    given = ("spawn", "--parent", parent, "--file", "researcher.toml", "--prop", "topic=foxes")
    assert shell.ok(*given).out == "Find 2 foxes\n"
    (child,) = children(shell, parent)
    (created,) = records(shell, child, "session.created")
    assert created["name"] == f"researcher-{child[-6:]}"
    assert (created["system_prompt"], created["model"]) == ("You know foxes.", "m")
    assert created["limits"] == {"max_ticks": 3}
    other = shell.ok(*given, "--model", "n", "--max-ticks", "5", "--json", "--", "Look").json
    (created,) = records(shell, other["agentId"], "session.created")
    assert (other["turn"]["response"], created["model"]) == ("Look", "n")
    assert created["limits"] == {"max_ticks": 5}


@pytest.mark.feature("A-05")
def test_options_a_file_and_a_file_with_props_say_the_same(shell: Any) -> None:
    """The three ways make the same subagent, give it the same task and print the same answer."""
    parent = shell.new()
    (shell.cwd / "whole.toml").write_text(
        'provider = "echo"\nmodel = "m"\nsystem = "You know foxes."\nprompt = "Find 2 foxes"\n'
        "max_ticks = 3\n"
    )
    (shell.cwd / "props.toml").write_text(
        'provider = "echo"\nmodel = "m"\nsystem = "You know {{topic}}."\n'
        'prompt = "Find {{n}} {{topic}}"\nmax_ticks = 3\n[props]\nn = 1\n'
    )
    options = ("--provider", "echo", "--model", "m", "--max-ticks", "3")
    made = []
    for form in (
        ("Find 2 foxes", *options, "--system", "You know foxes."),
        ("--file", "whole.toml"),
        ("--file", "props.toml", "--prop", "topic=foxes", "--prop", "n=2"),
    ):
        said = shell.ok("spawn", *form, "--parent", parent, "--name", f"n{len(made)}", "--json")
        (created,) = records(shell, said.json["agentId"], "session.created")
        (task,) = records(shell, said.json["agentId"], "message.enqueued")
        names = ("provider", "model", "system_prompt", "limits", "options", "profile", "cwd")
        made.append(({key: created[key] for key in names}, task["content"], said.json["turn"]))
    assert [turn.pop("response") for *_, turn in made] == ["Find 2 foxes"] * 3
    assert made[0][0]["system_prompt"] == "You know foxes."
    assert [(created, task) for created, task, _ in made] == [made[0][:2]] * 3


@pytest.mark.feature("A-05", "T-10")
def test_a_detached_subagent_runs_by_itself_and_reports_once(shell: Any) -> None:
    """Its id is printed at once; the answer comes into the parent's inbox, and is its next turn."""
    parent = shell.new()
    started = shell.process(
        "spawn", "count", "--parent", parent, "--detach", stdout=subprocess.PIPE
    )
    child = started.stdout.strip()
    assert child in children(shell, parent)
    until(lambda: records(shell, parent, "turn.complete"), "the parent has its answer")
    (answer,) = records(shell, parent, "message.enqueued")
    assert (answer["sender"], answer["content"][0]["text"]) == (child, "count")
    assert [data["status"] for data in records(shell, parent, "agent.spawned")] == [
        "running",
        "success",
    ]


@pytest.mark.feature("S-09")
def test_in_a_turn_the_id_is_printed_and_nothing_runs(shell: Any) -> None:
    """The command need not name its parent; and it says so in JSON, too."""
    parent = shell.new()
    with in_turn(shell, parent):
        child = shell.ok("spawn", "count").out.strip()
        said = shell.ok("spawn", "count", "--parent", parent, "--detach", "--json").json
        assert check("spawned", said) == []
        assert (said["status"], said["turn"]) == ("pending", None)
        turn = state_of(shell, parent).open_turn
        assert turn is not None
        assert [one["child"] for one in turn["deferred"]] == [child, said["agentId"]]
        assert records(shell, child, "turn.start") == []
    before = shell.tree()
    late = shell("spawn", "too late", "--json")
    assert (late.code, late.error["kind"]) == (13, "turn-over")
    assert shell.tree() == before


@pytest.mark.feature("A-05", "G-05")
def test_many_processes_spawn_at_once_and_each_gets_a_subagent_of_its_own(shell: Any) -> None:
    """In a turn, and outside; every id is printed once, and every name is another."""
    parent = shell.new()

    def all_at_once(*more: str) -> list[str]:
        variables = {**shell.environment(), **shell.variables}
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "agentsdir.cli.main", "spawn", f"task {number}", *more],
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(4)
        ]
        ended = [process.communicate(timeout=LONG) for process in started]
        assert {err for _, err in ended} == {""}
        assert {process.returncode for process in started} == {0}
        return [out.strip() for out, _ in ended]

    answers = all_at_once("--parent", parent)
    assert answers == [f"task {number}" for number in range(4)]
    ran = children(shell, parent)
    with in_turn(shell, parent):
        printed = all_at_once()
        turn = state_of(shell, parent).open_turn
        assert turn is not None
        assert sorted(one["child"] for one in turn["deferred"]) == sorted(printed)
    everybody = children(shell, parent)
    assert sorted({*ran, *printed}) == everybody
    assert len(everybody) == 8
    assert len({state_of(shell, child).name for child in everybody}) == 8
    assert shell("validate").code == 0


@pytest.mark.feature("A-06")
def test_an_ephemeral_subagent_is_hidden_and_gone_when_it_has_answered(shell: Any) -> None:
    """What it said is in its parent's log."""
    parent = shell.new()
    with in_turn(shell, parent):
        child = shell.ok("spawn", "later", "--ephemeral").out.strip()
    for name in ("AGENT", "TURN"):
        del shell.variables[f"AGENTSDIR_{name}"]
    assert [row["agentId"] for row in shell.ok("list").rows] == [parent]
    everybody = [row["agentId"] for row in shell.ok("list", "--all").rows]
    assert sorted(everybody) == sorted([parent, child])
    assert shell.ok("spawn", "now", "--parent", parent, "--ephemeral").out == "now\n"
    assert children(shell, parent) == [child]
    assert records(shell, parent, "block")[-1]["block"]["output"] == "now"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("task",), "--parent AGENT says whose subagent"),
        (("task", "--parent", "PARENT", "--prop", "a=b"), "--prop fills in an agent file"),
        (("task", "--parent", "PARENT", "--cwd", "nowhere"), "is no folder"),
        (("task", "--parent", "PARENT", "--detach", "--events"), "--events is for a subagent"),
        (("task", "--parent", "PARENT", "--detach", "--wait", "3"), "--wait is for a subagent"),
        (("task", "--parent", "PARENT", "--name", "@x"), "is no name"),
        (("task", "--parent", "PARENT", "--provider", "nobody"), "nobody"),
        (("", "--parent", "PARENT"), "the prompt is empty"),
        (("task", "--parent", "PARENT", "-o", "a=b"), "has no option 'a'"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_makes_nothing(
    shell: Any, arguments: tuple[str, ...], says: str
) -> None:
    """With a reason, and exit code 2."""
    parent = shell.new()
    done = shell("spawn", *(parent if word == "PARENT" else word for word in arguments))
    assert (done.code, says in done.err) == (2, True), done.err
    assert children(shell, parent) == []


def test_a_turn_spawns_subagents_of_its_own_and_waits_for_none(shell: Any) -> None:
    """For another agent's it would need a second slot."""
    parent, other = shell.new(), shell.new()
    with in_turn(shell, parent):
        done = shell("spawn", "task", "--parent", other)
        assert (done.code, "subagents of its own" in done.err) == (2, True)
        done = shell("spawn", "task", "--timeout", "3")
        assert (done.code, "and not in a turn" in done.err) == (2, True)
    assert children(shell, parent) == [other]


def block_states(shell: Any, parent: str) -> list[str]:
    """Return what became of the blocks of subagents in an agent's log."""
    blocks = [data["block"] for data in records(shell, parent, "block")]
    return [block["status"] for block in blocks if block["type"] == "subagent"]


@pytest.mark.feature("T-10")
def test_without_a_slot_the_task_stays_queued_and_is_run_later(shell: Any) -> None:
    """It has not begun, and is not called so; its parent gets its end when it has run."""
    shell.root.mkdir()
    (shell.root / "settings.toml").write_text("max_slots = 1\n")
    parent, busy = shell.new(), shell.new()
    shell.ok("send", busy, "hi")
    with hold_turn(paths_of(shell, busy)):
        done = shell("spawn", "count", "--parent", parent, "--json", "--wait", "0")
    assert (done.code, done.error["kind"]) == (11, "slots-full")
    (child,) = [one for one in children(shell, parent) if one != busy]
    assert block_states(shell, parent) == ["pending"]
    assert shell.ok("send", "--no-message", child).out == "count\n"
    assert block_states(shell, parent) == ["pending", "running", "success"]


@pytest.mark.feature("T-10")
def test_a_subagent_that_takes_too_long_is_ended_and_its_parent_told(shell: Any) -> None:
    """By the notice that says so."""
    (shell.cwd / "slow.jsonl").write_text('{"type":"sleep","seconds":600}\n')
    parent = shell.new()
    options = ("--provider", "script", "-o", f"file={shell.cwd / 'slow.jsonl'}", "--name", "fox")
    done = shell("spawn", "hi", "--parent", parent, *options, "--timeout", "0.2", "--json")
    assert (done.code, done.error["kind"]) == (124, "turn-timeout")
    (notice,) = records(shell, parent, "message.enqueued")
    assert notice["content"][0]["text"].endswith("failed: Timed out.")
    assert block_states(shell, parent) == ["pending", "running", "error"]


def test_a_started_process_can_be_interrupted_where_sigint_is_ignored() -> None:
    """As in all that a shell runs in the background."""
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{deaf}; time.sleep({LONG})"], stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        started = StartedProcess(process)

        started.interrupt()

        assert started.wait() == -signal.SIGTERM
