"""What is particular to a turn of Claude Code: questions, background tasks, its own interrupt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench import SHORT, run
from claude_bench import ClaudeBench
from claude_client import Claude
from clients import OTHER

from agentsdir.adapters import processes
from agentsdir.adapters.protocol import Decision, Process, ToolRequest
from agentsdir.formats.errors import ProviderError


@pytest.fixture
def bench(client: Claude) -> ClaudeBench:
    """Return a place to run the stand-in in."""
    return client.bench(client.home)


def heard(bench: ClaudeBench) -> Any:
    """Return what the client noted that it had heard."""
    return json.loads((bench.folder / "heard-0").read_text())


def test_the_system_prompt_and_options_are_the_clients_own_settings(bench: ClaudeBench) -> None:
    """One word each, whatever they begin with."""
    run(bench.create(system_prompt="-x\n", options={"max-turns": "3"}))
    arguments, _ = bench.given()
    assert {"--system-prompt=-x\n", "--max-turns=3"} <= {*arguments}


def test_the_host_gets_the_process_before_the_program_gets_the_prompt(bench: ClaudeBench) -> None:
    """And the prompt is logged before it is sent."""
    begun: list[Process] = []
    bench.host = bench.host._replace(on_start=begun.append)
    session = bench.create("note('prompted', True); done()")
    events = session.send("hi")
    first = next(events)
    assert first["block"]["id"] == f"{OTHER}:0"
    assert first["block"]["content"] == "hi"
    (process,) = begun
    assert processes.is_alive(process)
    assert not (bench.folder / "prompted-0").exists()
    list(events)
    assert (bench.folder / "prompted-0").exists()
    session.stop()
    assert not processes.is_alive(process)


def test_the_input_stays_open_until_nothing_runs_in_the_background(bench: ClaudeBench) -> None:
    """A turn of a background agent may still have to ask."""
    run(
        bench.create(
            "tasks = dict(type='system', subtype='background_tasks_changed')\n"
            "say(**tasks, tasks=[dict(task_id='t')]); done(); say(**tasks, tasks=[])\n"
            "say(type='control_request', request_id='r', request=dict(subtype='can_use_tool',"
            " tool_name='Bash', input=dict(command='ls')))\n"
            "reply = hear(); done(); note('heard', [reply, closed()])"
        )
    )
    reply, closed = heard(bench)
    assert reply is None or reply["response"]["response"]["behavior"] == "deny"
    assert closed


def test_a_question_is_answered_by_the_host(bench: ClaudeBench) -> None:
    """And one that the adapter does not understand is refused."""
    asked: list[Any] = []

    def confirm(request: Any) -> Decision:
        asked.append(request)
        return Decision(allowed=True)

    bench.host = bench.host._replace(confirm=confirm)
    run(
        bench.create(
            "ask = dict(type='control_request', request_id='r')\n"
            "say(**ask, request=dict(subtype='can_use_tool', tool_name='Bash', tool_use_id='t',"
            " input=dict(command='ls'))); one = hear()\n"
            "say(**ask, request=dict(subtype='hook_callback')); two = hear()\n"
            "note('heard', [one, two]); done()"
        )
    )
    one, two = heard(bench)
    assert one["response"]["response"]["updatedInput"] == {"command": "ls"}
    assert two["response"]["subtype"] == "error"
    assert [request.tool_name for request in asked] == ["Bash"]


def test_an_interrupt_is_asked_for_in_the_clients_own_way(bench: ClaudeBench) -> None:
    """What still comes of the turn is kept."""
    session = bench.create(
        "answer('u1', 'So far')\n"
        "note('heard', hear())\n"
        "answer('u2', 'Last words')\n"
        "say(type='result', subtype='error_during_execution', is_error=True,"
        " terminal_reason='aborted_streaming'); closed()"
    )
    events = session.send("hi")
    while (next(events).get("block") or {}).get("content") != "So far":
        pass
    rest = [*session.interrupt()]
    session.stop()
    assert heard(bench)["request"] == {"subtype": "interrupt"}
    texts = [e["block"].get("content") for e in rest if e["type"] == "block_complete"]
    assert "Last words" in texts


def test_a_task_in_the_background_has_as_long_as_it_takes(bench: ClaudeBench) -> None:
    """The client names it before its result."""
    bench.host = bench.host._replace(patience=SHORT)
    task = "say(type='system', subtype='task_started', task_id='t')\ndone()\ntime.sleep(1)\n"
    run(bench.create(task + "note('stayed', True)"))
    assert (bench.folder / "stayed-0").exists()


def test_clear_is_refused_before_anything_is_started(bench: ClaudeBench) -> None:
    """The client would go on under another id, and the session be as it was."""
    for prompt in ("/clear", " /clear now"):
        with pytest.raises(ProviderError, match="another session") as refused:
            run(bench.create(), prompt)
        assert refused.value.kind == "use-reset"
    assert bench.runs == 0
    run(bench.create(), "/clearly not")
    assert bench.runs == 1


def test_a_runner_is_agreed_with_the_client_before_it_has_the_prompt(bench: ClaudeBench) -> None:
    """Each call is asked about; of an interrupted turn none is any more."""
    asked: list[ToolRequest] = []

    def decide(request: ToolRequest) -> Decision:
        asked.append(request)
        return Decision(allowed=False, reason="not here")

    bench.host = bench.host._replace(decide=decide)
    # What the stand-in takes for the prompt is the request.
    accepts = (
        "say(type='control_response', response=dict(subtype='success', request_id='initialize'))\n"
        "said = hear()\n"
        "call = dict(tool_name='Read', tool_input={'file_path': 'a'})\n"
        "say(type='control_request', request_id='1', request=dict("
        "subtype='hook_callback', callback_id='calls', tool_use_id='t', input=call))\n"
        "note('heard', [prompt['request']['subtype'], said['type'], hear()]); done()"
    )
    run(bench.create(accepts))
    first, second, answer = heard(bench)
    assert (first, second) == ("initialize", "user")
    output = answer["response"]["response"]["hookSpecificOutput"]
    assert output["permissionDecisionReason"] == "not here"
    assert [(one.tool_name, one.tool_use_id) for one in asked] == [("Read", "t")]


def test_a_client_that_does_not_ask_about_each_call_gets_no_prompt(bench: ClaudeBench) -> None:
    """Its calls would run outside the runner."""
    bench.host = bench.host._replace(decide=lambda _: Decision(allowed=True))
    refuses = (
        "say(type='control_response', response=dict(subtype='error', request_id='initialize'))\n"
        "note('heard', hear()); done()"
    )
    with pytest.raises(ProviderError) as failed:
        run(bench.create(refuses))
    assert failed.value.kind == "runner-unsupported"
    with pytest.raises(ProviderError) as failed:
        run(bench.create("sys.exit(0)"))
    assert failed.value.kind == "cut-stream"
