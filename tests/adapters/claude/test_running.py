"""How the client is started, talked to and left: a stand-in for it tells what it was given."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters import processes
from agentsdir.adapters.claude.provider import ClaudeProvider
from agentsdir.adapters.contract import Decision, Host, Process, SessionSpec
from agentsdir.adapters.sides import ProviderSession
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.reading.source import Source

SESSION = "6f1b2f4e-93a7-4f0e-a0b5-0a4d6f3c1e02"
PROMPT = "11111111-2222-4333-8444-555555555555"
SHORT = 0.2
"""Seconds of patience in a test in which it runs out."""

# It writes down its arguments and surroundings, and then does what a test wants.
CLIENT = """\
import json, os, sys, time
def say(**line): print(json.dumps(line), flush=True)
def hear(): return json.loads(sys.stdin.readline() or "null")
def done(**more): say(type="result", subtype="success", is_error=False, result="x", **more)
def closed(): return sys.stdin.readline() == ""
with open("given", "w") as given: json.dump([sys.argv[1:], dict(os.environ)], given)
prompt = hear()
{body}
"""


class Bench:
    """A stand-in for the client, and what is needed to open sessions with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = Host(
            folder, {"PATH": "/usr/bin:/bin"}, marks={"AGENTSDIR_TURN": f"turn of {folder}"}
        )

    def spec(self, body: str = "done()", **fields: Any) -> SessionSpec:
        """Return the spec of a session whose client does something after it has the prompt."""
        script = self.folder / "client.py"
        script.write_text(CLIENT.replace("{body}", body))
        host = self.host._replace(command=(sys.executable, str(script)))
        said = {
            "model": "",
            "system_prompt": "",
            "cwd": str(self.folder),
            "now": lambda: "2026-01-02T03:04:05.000000Z",
            "sleep": lambda _seconds: None,
            "new_id": lambda: PROMPT,
        }
        return SessionSpec(SESSION, **{**said, "host": host, **fields})

    @property
    def given(self) -> tuple[list[str], dict[str, str]]:
        """Return the arguments and the environment that the client had."""
        arguments, environment = json.loads((self.folder / "given").read_text())
        return arguments, environment


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a place to run the stand-in in."""
    return Bench(tmp_path)


def run(session: ProviderSession, content: Any = "hi") -> list[dict[str, Any]]:
    """Run one turn to its end."""
    try:
        return [*session.send(content)]
    finally:
        session.stop()


def create(spec: SessionSpec) -> ProviderSession:
    """Open a new session."""
    return ClaudeProvider().create(spec)


def test_a_new_session_gets_our_id_and_one_that_was_there_is_resumed(bench: Bench) -> None:
    """Settings come as one word each, whatever they begin with; what is not set is not said."""
    run(create(bench.spec()))
    arguments, _ = bench.given
    assert f"--session-id={SESSION}" in arguments
    assert not any(one.startswith(("--model", "--permission-mode", "--sys")) for one in arguments)
    host = bench.host._replace(permission_mode="plan", command=())
    spec = bench.spec(model="m-1", system_prompt="-x\n", options={"max-turns": "3"})
    spec = spec._replace(host=spec.host._replace(permission_mode=host.permission_mode))
    saved = Source("a", data=b'{"type":"summary"}\n')
    known = spec._replace(transcripts={f"projects/-w/{SESSION}.jsonl": saved})
    run(ClaudeProvider().restore(known, b"anything"))
    arguments, _ = bench.given
    assert f"--resume={SESSION}" in arguments
    assert {"--model=m-1", "--system-prompt=-x\n", "--max-turns=3"} <= {*arguments}
    assert "--permission-mode=plan" in arguments
    assert f"--session-id={SESSION}" not in arguments


def test_what_another_session_left_is_not_resumed(bench: Bench) -> None:
    """A crash before a reset may keep the old session's transcript out of the log."""
    old = f"projects/-w/{SESSION[:-2]}ff.jsonl"
    spec = bench.spec(transcripts={old: Source("a", data=b'{"type":"summary"}\n')})
    run(ClaudeProvider().restore(spec, b""))
    arguments, _ = bench.given
    assert f"--session-id={SESSION}" in arguments


def test_the_environment_is_the_users_with_theirs_added_and_the_marks_last(bench: Bench) -> None:
    """What another client says to its children is not passed on."""
    bench.host = bench.host._replace(
        variables={"PATH": "/usr/bin:/bin", "CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli"}
        | {"A": "shell", "B": "shell"},
        environment={"B": "config", "AGENTSDIR_TURN": "config"},
    )
    run(create(bench.spec()))
    _, seen = bench.given
    assert (seen["A"], seen["B"]) == ("shell", "config")
    assert seen["AGENTSDIR_TURN"] == bench.host.marks["AGENTSDIR_TURN"]
    assert seen["HOME"] == str(bench.folder)
    assert {"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT"}.isdisjoint(seen)


def test_the_program_is_told_of_before_it_is_given_the_prompt(bench: Bench) -> None:
    """And the prompt is logged before it is sent."""
    begun: list[Process] = []
    host = bench.host._replace(began=begun.append)
    spec = bench.spec("open('prompted', 'w').close(); done()")
    session = create(spec._replace(host=spec.host._replace(began=host.began)))
    events = session.send("hi")
    first = next(events)
    assert first["block"]["id"] == f"{PROMPT}:0"
    assert first["block"]["content"] == "hi"
    (process,) = begun
    assert processes.is_alive(process)
    assert not (bench.folder / "prompted").exists()
    list(events)
    assert (bench.folder / "prompted").exists()
    session.stop()
    assert not processes.is_alive(process)


def test_the_input_stays_open_until_nothing_runs_in_the_background(bench: Bench) -> None:
    """A turn of a background agent may still have to ask."""
    run(
        create(
            bench.spec(
                "tasks = dict(type='system', subtype='background_tasks_changed')\n"
                "say(**tasks, tasks=[dict(task_id='t')]); done(); say(**tasks, tasks=[])\n"
                "say(type='control_request', request_id='r', request=dict(subtype='can_use_tool',"
                " tool_name='Bash', input=dict(command='ls')))\n"
                "answer = hear(); done()\n"
                "json.dump([answer, closed()], open('heard', 'w'))"
            )
        )
    )
    answer, closed = json.loads((bench.folder / "heard").read_text())
    assert answer is None or answer["response"]["response"]["behavior"] == "deny"
    assert closed


def test_a_question_is_answered_by_the_host(bench: Bench) -> None:
    """And one that nobody here understands is refused."""
    spec = bench.spec(
        "ask = dict(type='control_request', request_id='r')\n"
        "say(**ask, request=dict(subtype='can_use_tool', tool_name='Bash', tool_use_id='t',"
        " input=dict(command='ls'))); one = hear()\n"
        "say(**ask, request=dict(subtype='hook_callback')); two = hear()\n"
        "json.dump([one, two], open('heard', 'w')); done()"
    )
    asked: list[Any] = []

    def confirm(request: Any) -> Decision:
        asked.append(request)
        return Decision(allowed=True)

    run(create(spec._replace(host=spec.host._replace(confirm=confirm))))
    one, two = json.loads((bench.folder / "heard").read_text())
    assert one["response"]["response"]["updatedInput"] == {"command": "ls"}
    assert two["response"]["subtype"] == "error"
    assert [request.tool_name for request in asked] == ["Bash"]


def test_an_interrupt_is_asked_for_in_the_clients_own_way(bench: Bench) -> None:
    """What still comes of the turn is kept."""
    spec = bench.spec(
        "say(type='assistant', uuid='u1', message=dict(id='m1', role='assistant',"
        " content=[dict(type='text', text='So far')]))\n"
        "asked = hear(); json.dump(asked, open('heard', 'w'))\n"
        "say(type='assistant', uuid='u2', message=dict(id='m2', role='assistant',"
        " content=[dict(type='text', text='Last words')]))\n"
        "say(type='result', subtype='error_during_execution', is_error=True,"
        " terminal_reason='aborted_streaming'); closed()"
    )
    session = create(spec)
    events = session.send("hi")
    said = ""
    while said != "So far":
        block = next(events).get("block") or {}
        said = block.get("content", "")
    rest = [*session.interrupt()]
    session.stop()
    heard = json.loads((bench.folder / "heard").read_text())
    assert heard["request"] == {"subtype": "interrupt"}
    texts = [e["block"].get("content") for e in rest if e["type"] == "block_complete"]
    assert "Last words" in texts


def test_an_interrupt_of_nothing_does_nothing(bench: Bench) -> None:
    """No program is started for it."""
    session = create(bench.spec())
    assert [*session.interrupt()] == []
    session.stop()
    assert not (bench.folder / "given").exists()


TALKS_ON = """
say(type="system", subtype="init", session_id="s", model="m")
done()
while True:
    say(type="system", subtype="status", session_id="s")
    time.sleep(0.001)
"""


def test_a_client_that_has_given_its_result_and_goes_on_talking_is_ended(bench: Bench) -> None:
    """What it says does not move the end of its patience; the turn has succeeded."""
    begun: list[Process] = []
    bench.host = bench.host._replace(patience=SHORT)
    spec = bench.spec(TALKS_ON)
    spec = spec._replace(host=spec.host._replace(began=begun.append))
    told = run(create(spec))
    assert told[0]["block"]["type"] == "user_message"
    assert not processes.is_alive(begun[0])


def test_leaving_in_the_middle_leaves_nothing_running(bench: Bench) -> None:
    """Neither the client nor what it started in a session of its own."""
    spec = bench.spec(
        "import subprocess\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "say(type='system', subtype='init', session_id='s', model='m'); time.sleep(600)"
    )
    session = create(spec)
    events = session.send("hi")
    next(events)
    next(events)
    assert len([*processes.marked(bench.host.marks)]) == 2
    session.stop()
    assert [*processes.marked(bench.host.marks)] == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda spec: spec._replace(cwd="/nowhere/at/all"), "no-folder"),
        (lambda spec: spec._replace(host=spec.host._replace(command=("no-such",))), "no-client"),
        (lambda spec: spec._replace(host=spec.host._replace(command=())), "no-client"),
    ],
)
def test_what_is_missing_is_named_before_anything_runs(
    bench: Bench, change: Callable[[SessionSpec], SessionSpec], kind: str
) -> None:
    """The program, or the folder."""
    session = create(change(bench.spec()))
    with pytest.raises(ProviderError) as refused:
        run(session)
    assert refused.value.kind == kind
    assert not (bench.folder / "given").exists()


def test_a_client_that_ends_in_the_middle_is_cut(bench: Bench) -> None:
    """With what it said on the side."""
    session = create(bench.spec("sys.stderr.write('no memory'); sys.exit(9)"))
    with pytest.raises(ProviderError, match="no memory") as cut:
        run(session)
    assert cut.value.kind == "cut-stream"


def test_a_client_that_has_answered_and_stays_is_not_waited_for(bench: Bench) -> None:
    """After its answer it has some seconds; a task that it told of has as long as it takes."""
    bench.host = bench.host._replace(patience=SHORT)
    begun: list[Process] = []
    spec = bench.spec("done()\ntime.sleep(600)")
    run(create(spec._replace(host=spec.host._replace(began=begun.append))))
    assert not processes.is_alive(begun[0])
    told = "say(type='system', subtype='task_started', task_id='t')\ndone()\ntime.sleep(1)\n"
    run(create(bench.spec(told + "open('stayed', 'w')")))
    assert (bench.folder / "stayed").exists()


def test_clear_is_refused_before_anything_is_started(bench: Bench) -> None:
    """The client would go on under another id, and the session be as it was."""
    for prompt in ("/clear", " /clear now"):
        with pytest.raises(ProviderError, match="another session") as refused:
            run(create(bench.spec()), prompt)
        assert refused.value.kind == "use-reset"
    assert not (bench.folder / "given").exists()
    run(create(bench.spec()), "/clearly not")
    assert (bench.folder / "given").exists()
