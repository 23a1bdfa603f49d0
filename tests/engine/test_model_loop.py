"""The model, its tools, and the model again: what is carried out, logged and broken off."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from looping import MODEL, answered, called, logged, model, run_turn, said, spoken, write_script

from agentsdir.adapters import script
from agentsdir.adapters.protocol import Decision, ToolCall, ToolResult
from agentsdir.engine import model_loop
from agentsdir.engine.cancel import TurnCancelled, interrupt
from agentsdir.engine.tools import ToolOutput, create_tool, tool
from agentsdir.formats.errors import AgentsdirError, ProviderError, TurnTimeout
from agentsdir.formats.store.agent import read_agent

ANY = {"type": "object"}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_call_is_carried_out_and_the_model_is_called_again_with_its_result(stage: Any) -> None:
    """The log has call, result and answer in order, and the call ends with its result's status."""
    asked: list[Any] = []

    def call(request: Any) -> Any:
        asked.append((request.tick, request.content, [r["output"] for r in request.results]))
        assert [one.name for one in request.tools] == ["add"]
        if request.tick == 1:
            assert said(request.timeline()) == [("user_message", "hi")]
            return ["let me ", "see", ToolCall("add", {"a": 1, "b": 2})]
        assert said(request.timeline())[-1] == ("tool_result", 3)
        return "it is 3"

    with model(call):
        paths = stage.new(provider=MODEL)
        events: list[dict[str, Any]] = []
        result = run_turn(stage, paths, add, events=events)
    assert asked == [(1, "hi", []), (2, "hi", [3])]
    assert (result.response, result.tools_used) == ("let me see\n\nit is 3", {"add": 1})
    assert said(logged(stage, paths)) == [
        ("user_message", "hi"),
        ("assistant_text", "let me see"),
        ("tool_use", "success"),
        ("tool_result", 3),
        ("assistant_text", "it is 3"),
    ]
    of_the_call = [e for e in events if e["blockId"].endswith(":1-2")]
    assert [e.get("updates", e.get("block", {}).get("status")) for e in of_the_call] == [
        "pending",
        {"status": "running"},
        "success",
    ]


def test_a_model_without_tools_has_its_calls_unanswered(stage: Any) -> None:
    """As before there were tools: the turn ends, and its end closes no call of a success."""
    calls = []

    def call(request: Any) -> Any:
        calls.append(request.tools)
        return ["well", ToolCall("add", {"a": 1, "b": 2})]

    with model(call):
        paths = stage.new(provider=MODEL)
        assert run_turn(stage, paths).response == "well"
    assert calls == [()]
    assert said(logged(stage, paths))[-1] == ("tool_use", "pending")


def test_what_a_handler_cannot_do_is_a_result_that_is_an_error(stage: Any) -> None:
    """An exception, a value that is no JSON, an input that breaks the schema, an exit."""

    def leaves(_given: Any) -> Any:
        raise SystemExit(3)

    class Mute(BaseException):
        def __str__(self) -> str:
            raise ValueError

    def is_mute(_given: Any) -> Any:
        raise Mute

    tools = [
        add,
        create_tool("mute", ANY, is_mute),
        create_tool("raises", ANY, lambda _: 1 / 0),
        create_tool("odd", ANY, lambda _: {1, 2}),
        create_tool("leaves", ANY, leaves),
        create_tool("says_so", ANY, lambda _: ToolOutput({"no": 1}, is_error=True)),
        create_tool("nothing", ANY, lambda _: None),
    ]
    found: list[Any] = []

    def call(request: Any) -> Any:
        if request.tick == 1:
            names = ("mute", "raises", "odd", "leaves", "says_so", "nothing", "unknown")
            return [ToolCall("add", {"a": "one"}), *(ToolCall(name, {}) for name in names)]
        found.extend((r["output"], r["isError"]) for r in request.results)
        return "so"

    with model(call):
        paths = stage.new(provider=MODEL)
        run_turn(stage, paths, *tools)
    schema, *rest = found
    no_json = "the tool returned a set that is no JSON: a value cannot be written exactly: "
    no_json += "a set is no plain JSON type"
    assert schema[1]
    assert "the input is none for add" in schema[0]
    assert rest == [
        ("Mute", True),
        ("ZeroDivisionError: division by zero", True),
        (no_json, True),
        ("SystemExit: 3", True),
        ({"no": 1}, True),
        ("", False),
        ("there is no tool 'unknown'", True),
    ]
    statuses = [b["status"] for b in logged(stage, paths) if b["type"] == "tool_use"]
    assert statuses == ["error"] * 6 + ["success", "error"]


def test_calls_of_one_model_call_run_side_by_side_and_their_results_keep_the_order(
    stage: Any,
) -> None:
    """Each handler waits for the other; the first call's is the last to return."""
    met = threading.Barrier(2, timeout=30)
    second_is_done = threading.Event()

    def first(_given: Any) -> str:
        met.wait()
        assert second_is_done.wait(30)
        return "first"

    def second(_given: Any) -> str:
        met.wait()
        return "second"

    results: list[str] = []

    def call(request: Any) -> Any:
        if request.tick == 1:
            return [ToolCall("first", {}), ToolCall("second", {})]
        results.extend(r["output"] for r in request.results)
        return "done"

    def on_event(event: dict[str, Any]) -> None:
        if event.get("block", {}).get("output") == "second":
            # Its result is durable, and the first one still runs.
            assert b'"second"' in paths.log.read_bytes()
            second_is_done.set()

    class Heard(list[Any]):
        append = staticmethod(on_event)

    with model(call):
        paths = stage.new(provider=MODEL)
        tools = create_tool("first", ANY, first), create_tool("second", ANY, second)
        run_turn(stage, paths, *tools, events=Heard())
    assert results == ["first", "second"]
    assert [b["output"] for b in logged(stage, paths) if b["type"] == "tool_result"] == [
        "second",
        "first",
    ]


def test_a_handler_knows_its_call_and_shows_how_far_it_is(stage: Any) -> None:
    """What it emits is on the live stream before its result, and not in the log."""
    seen: list[Any] = []

    @tool
    def slow(ctx: Any = None) -> str:
        return "unused"

    def handle(given: Any, ctx: Any) -> str:
        seen.append((ctx.agent_id, ctx.turn_id, ctx.tool_use_id, ctx.signal.is_set()))
        ctx.emit({"progress": 0.5})
        with pytest.raises(AgentsdirError):
            ctx.emit({"id": "another"})
        with pytest.raises(AgentsdirError, match="no JSON"):
            ctx.emit({"progress": {1}})
        with pytest.raises(AgentsdirError) as refused:
            ctx.spawn()
        assert refused.value.kind == "no-spawn"
        given["changed"] = True
        return "done"

    assert slow.input_schema["properties"] == {"ctx": {}}

    def call(request: Any) -> Any:
        return [ToolCall("slow", {}, "use-1")] if request.tick == 1 else "ok"

    events: list[dict[str, Any]] = []
    with model(call):
        paths = stage.new(provider=MODEL)
        result = run_turn(stage, paths, create_tool("slow", ANY, handle), events=events)
    assert seen == [(paths.id, result.turn_id, "use-1", False)]
    updates = [e["updates"] for e in events if e["type"] == "block_update"]
    assert updates == [{"status": "running"}, {"progress": 0.5}]
    assert b"progress" not in paths.log.read_bytes()
    assert next(b["input"] for b in logged(stage, paths) if b["type"] == "tool_use") == {}


def test_a_coroutine_is_a_handler_and_a_model(stage: Any) -> None:
    """Each runs in an event loop of its own."""

    async def double(given: Any, _context: Any) -> int:
        return 2 * int(given["n"])

    async def call(request: Any) -> Any:
        return [ToolCall("double", {"n": 4})] if request.tick == 1 else "yes"

    with model(call):
        paths = stage.new(provider=MODEL)
        assert run_turn(stage, paths, create_tool("double", ANY, double)).response == "yes"
    assert ("tool_result", 8) in said(logged(stage, paths))


def test_the_limit_counts_model_calls_and_the_last_results_are_logged(stage: Any) -> None:
    """The model is not called once more; what it said until then is the answer."""
    ticks: list[int] = []

    def call(request: Any) -> Any:
        ticks.append(request.tick)
        return ["again ", ToolCall("add", {"a": request.tick, "b": 0})]

    with model(call):
        paths = stage.new(provider=MODEL, max_ticks=3)
        result = run_turn(stage, paths, add)
        assert (result.stop_reason, ticks) == ("max_ticks", [1, 2, 3])
        assert said(logged(stage, paths))[-1] == ("tool_result", 3)
        ticks.clear()
        default = stage.new(provider=MODEL)
        assert run_turn(stage, default, add).stop_reason == "max_ticks"
    assert ticks == list(range(1, 11))


@pytest.mark.parametrize("answer", ["yes", "no", "other"])
def test_a_tool_that_requires_confirmation_is_asked_about(stage: Any, answer: str) -> None:
    """A no is a result with its reason; a yes may change the input."""
    asked: list[Any] = []

    def confirm(request: Any) -> Decision:
        asked.append((request.tool_name, request.tool_use_id, request.input))
        changed = {"a": 5, "b": 5} if answer == "other" else None
        return Decision(answer != "no", "not today" if answer == "no" else "", changed)

    host = stage.client.host._replace(confirm=confirm)
    stage.client = stage.client._replace(host=host)
    careful = create_tool("add", add.input_schema, add.handler, requires_confirmation=True)

    def call(request: Any) -> Any:
        return [ToolCall("add", {"a": 1, "b": 1}, "u")] if request.tick == 1 else "so"

    with model(call):
        paths = stage.new(provider=MODEL)
        result = run_turn(stage, paths, careful)
    assert asked == [("add", "u", {"a": 1, "b": 1})]
    output = {"yes": 2, "no": "not today", "other": 10}[answer]
    assert ("tool_result", output) in said(logged(stage, paths))
    assert [one.reason for one in result.denials or ()] == (["not today"] if answer == "no" else [])


def test_a_tool_that_needs_a_user_where_there_is_none_is_denied(stage: Any) -> None:
    """No answer is a no."""
    careful = create_tool("add", add.input_schema, add.handler, requires_confirmation=True)
    with model(lambda r: "so" if r.results else [ToolCall("add", {"a": 1, "b": 1})]):
        paths = stage.new(provider=MODEL)
        run_turn(stage, paths, careful)
    assert ("tool_result", "no user could be asked about add") in said(logged(stage, paths))


def test_an_interrupt_reaches_a_handler_which_has_a_moment_to_return(stage: Any) -> None:
    """The result of one that heeds it is logged; the model is not called again."""

    def patient(_given: Any, ctx: Any) -> str:
        interrupt(stage.services, paths)
        assert ctx.signal.wait(30)
        return "I stopped"

    with model(lambda r: "no" if r.results else [ToolCall("patient", {})]):
        paths = stage.new(provider=MODEL)
        with pytest.raises(TurnCancelled):
            run_turn(stage, paths, create_tool("patient", ANY, patient))
    assert said(logged(stage, paths))[1:] == [("tool_use", "success"), ("tool_result", "I stopped")]
    assert "turn.aborted" in stage.events(paths)


def test_a_handler_that_does_not_heed_an_interrupt_is_left_behind(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call is closed as an error, and what it returns later is lost."""
    monkeypatch.setattr(model_loop, "GRACE", 0.05)
    leave, has_left = threading.Event(), threading.Event()

    def deaf(_given: Any) -> str:
        interrupt(stage.services, paths)
        leave.wait(60)
        has_left.set()
        return "too late"

    with model(lambda r: "no" if r.results else [ToolCall("deaf", {})]):
        paths = stage.new(provider=MODEL)
        with pytest.raises(TurnCancelled):
            run_turn(stage, paths, create_tool("deaf", ANY, deaf))
        call, result = logged(stage, paths)[1:]
        assert (call["status"], result["synthetic"]) == ("error", True)
        leave.set()
        assert has_left.wait(30)
        before = paths.log.read_bytes()
        assert read_agent(paths).state.open_turn is None
        assert paths.log.read_bytes() == before


@pytest.mark.parametrize("off_the_main_thread", [False, True])
def test_the_time_limit_of_a_turn_holds_while_a_handler_runs(
    stage: Any, off_the_main_thread: bool
) -> None:
    """The handler is asked to end, whichever thread the turn is in."""
    signalled: list[bool] = []

    def waits(_given: Any, ctx: Any) -> str:
        signalled.append(ctx.signal.wait(30))
        return "ended"

    def turn() -> None:
        limit = 0.1
        while not signalled:  # on a busy machine it may be over before the handler began
            with pytest.raises(TurnTimeout):
                run_turn(stage, paths, create_tool("waits", ANY, waits), timeout=limit)
            limit *= 2

    with model(lambda r: "no" if r.results else [ToolCall("waits", {})]):
        paths = stage.new(provider=MODEL)
        if off_the_main_thread:
            thread = threading.Thread(target=turn)
            thread.start()
            thread.join(60)
        else:
            turn()
    assert signalled == [True]
    assert said(logged(stage, paths))[-1] == ("tool_result", "ended")


def test_a_model_sees_that_its_turn_is_to_end(stage: Any) -> None:
    """In another thread nothing breaks it off."""

    def call(request: Any) -> Any:
        assert not request.is_cancelled()
        interrupt(stage.services, paths)
        yield "I "
        until(request.is_cancelled, "the turn is to end")
        yield "go"

    outcome: list[BaseException] = []

    def turn() -> None:
        try:
            run_turn(stage, paths)
        except TurnCancelled as error:
            outcome.append(error)

    with model(call):
        paths = stage.new(provider=MODEL)
        thread = threading.Thread(target=turn)
        thread.start()
        thread.join(60)
    assert len(outcome) == 1


def test_a_model_that_raises_fails_the_turn_and_its_calls_are_closed(stage: Any) -> None:
    """As any provider that fails; the handlers of calls before it have returned."""

    def call(request: Any) -> Any:
        yield "so far"
        if request.tick == 2:
            raise RuntimeError("out of words")
        yield ToolCall("add", {"a": 1, "b": 1})

    with model(call):
        paths = stage.new(provider=MODEL)
        with pytest.raises(ProviderError, match="RuntimeError: out of words"):
            run_turn(stage, paths, add)
    assert said(logged(stage, paths))[-1] == ("assistant_text", "so far")
    assert ("tool_use", "success") in said(logged(stage, paths))


KILLED = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from looping import MODEL, model, run_turn
from pathlib import Path
from conftest import Stage
from agentsdir.adapters.protocol import ToolCall
from agentsdir.engine.lookup import find_agent
from agentsdir.engine.tools import create_tool
from agentsdir.formats.store.layout import Layout

def kill(_given):
    while b'"output":"one"' not in paths.log.read_bytes():
        time.sleep(0.01)
    os._exit(9)

stage = Stage(Path(sys.argv[2]))
stage.ids.made, stage.ticks = 100, 100
paths = find_agent(Layout(stage.root), sys.argv[3])
tools = [create_tool("one", {"type": "object"}, lambda _: "one"),
         create_tool("kill", {"type": "object"}, kill)]
with model(lambda request: [ToolCall("kill", {}), ToolCall("one", {})]):
    run_turn(stage, paths, *tools)
"""


def test_a_process_that_dies_in_a_handler_leaves_the_results_that_were_there(stage: Any) -> None:
    """Recovery closes the call that did not return, and the model goes on with both."""
    with model(lambda request: [said(request.timeline())[-1][1] and "on"]):
        paths = stage.new(provider=MODEL)
        here = str(Path(__file__).parent)
        path = f"{here}:{Path(here).parent}"
        died = subprocess.run(
            [sys.executable, "-c", KILLED, here, str(stage.root), paths.id],
            env={**os.environ, "PYTHONPATH": path},
            check=False,
            capture_output=True,
        )
        assert died.returncode == 9, died
        stage.ids.made = 200
        stage.ticks = 200
        assert run_turn(stage, paths, text="again").response == "on"
    blocks = {b["toolUseId"]: b for b in logged(stage, paths) if b["type"] == "tool_result"}
    outputs = {b["toolName"]: blocks[b["toolUseId"]] for b in logged(stage, paths)
               if b["type"] == "tool_use"}  # fmt: skip
    assert (outputs["one"]["output"], outputs["one"].get("synthetic")) == ("one", None)
    assert (outputs["kill"]["isError"], outputs["kill"]["synthetic"]) == (True, True)
    calls = [b["status"] for b in logged(stage, paths) if b["type"] == "tool_use"]
    assert calls == ["error", "success"]


# Scripts.


def test_a_script_stops_at_a_call_without_a_result_and_plays_on_after_it(
    stage: Any, tmp_path: Path
) -> None:
    """Calls in a row are of one model call, and so is the result of one among them."""
    script = write_script(
        tmp_path / "s.jsonl",
        spoken("first"),
        called("add", "u1", {"a": 1, "b": 1}),
        called("Read", "u2"),
        answered("u2", "a file"),
        called("add", "u3", {"a": 2, "b": 2}),
        spoken("second"),
        called("add", "u4", {"a": 3, "b": 3}, messageId="m1"),
        called("add", "u5", {"a": 4, "b": 4}, messageId="m2"),
    )
    paths = stage.script(script)
    assert run_turn(stage, paths, add).response == "first\n\nsecond"
    blocks = logged(stage, paths)
    outputs = {b["toolUseId"]: b["output"] for b in blocks if b["type"] == "tool_result"}
    assert outputs == {"u1": 2, "u2": "a file", "u3": 4, "u4": 6, "u5": 8}
    order = [b.get("toolUseId") or b["content"] for b in blocks]
    assert order.index("second") > max(i for i, one in enumerate(order) if one in ("u1", "u3"))
    assert order[-4:] == ["u4", "u4", "u5", "u5"]
    # The next turn plays from the beginning, with ids of its own.
    run_turn(stage, paths, add)
    assert len(logged(stage, paths)) == 2 * len(blocks)


def test_a_script_without_such_a_tool_plays_as_it_always_has(stage: Any, tmp_path: Path) -> None:
    """Its call stays without an answer, and its result in the script is the script's own."""
    script = write_script(
        tmp_path / "s.jsonl",
        called("Read", "u1"),
        answered("u1", "a file"),
        called("Write", "u2"),
        spoken("done"),
    )
    other = create_tool("add", ANY, lambda _: pytest.fail("it is not called"))
    reads = create_tool("Read", ANY, lambda _: pytest.fail("its result is in the script"))
    logs = []
    for tools in ((), (other, reads)):
        paths = stage.script(script)
        run_turn(stage, paths, *tools)
        logs.append(said(logged(stage, paths)))
    assert logs[0] == logs[1]


def test_a_result_that_the_script_has_too_late_is_not_played(stage: Any, tmp_path: Path) -> None:
    """The engine has answered the call meanwhile: each has one result."""
    script = write_script(
        tmp_path / "s.jsonl",
        called("add", "u1", {"a": 1, "b": 1}),
        called("Other", "u2"),
        spoken("between"),
        answered("u2", "late"),
    )
    paths = stage.script(script)
    run_turn(stage, paths, add)
    results = [b for b in logged(stage, paths) if b["type"] == "tool_result"]
    assert sorted(b["toolUseId"] for b in results) == ["u1", "u2"]


# Any loop at all.

USES = st.sampled_from(["add", "fails", "unknown", "Read"])


@st.composite
def scripts(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return a script of texts, calls, and results of some of the calls."""
    lines: list[dict[str, Any]] = []
    waiting: list[str] = []
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["say", "call", "call", "answer", "sleep", "end"]))
        if kind == "say":
            lines.append(spoken(f"t{number}"))
        elif kind == "call":
            use = f"u{number}"
            message = draw(st.sampled_from([None, "m1", "m2"]))
            named = {"messageId": message} if message else {}
            status = draw(st.sampled_from(["pending", "success"]))
            lines.append(called(draw(USES), use, {"a": number, "b": 1}, **named))
            lines[-1]["block"]["status"] = status
            waiting.append(use)
        elif kind == "answer" and waiting:
            lines.append(answered(waiting.pop(draw(st.integers(0, len(waiting) - 1))), number))
        elif kind == "sleep":
            lines.append({"type": "sleep", "seconds": 0})
    return lines or [spoken("nothing")]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=scripts(), with_tools=st.booleans())
def test_whatever_a_script_calls_each_call_has_one_result_at_most_and_after_it(
    stage: Any, tmp_path: Path, lines: list[dict[str, Any]], with_tools: bool
) -> None:
    """Every call of a tool that is there has exactly one; the transcript says what the log says."""
    tools = [add, create_tool("fails", ANY, lambda _: 1 / 0)] if with_tools else []
    paths = stage.script(write_script(tmp_path / "s.jsonl", *lines))
    try:
        run_turn(stage, paths, *tools)
    except ProviderError as error:
        assert error.kind == "max-ticks"  # noqa: PT017
    is_whole = read_agent(paths).state.counters["failedTurns"] == 0 and not any(
        record["data"].get("stop_reason") == "max_ticks" for record in stage.log(paths)
    )
    blocks = logged(stage, paths)
    results: dict[str, int] = {}
    for at, block in enumerate(blocks):
        if block["type"] == "tool_result":
            assert block["toolUseId"] not in results
            results[block["toolUseId"]] = at
    for at, block in enumerate(blocks):
        if block["type"] != "tool_use":
            continue
        name, use = block["toolName"], block["toolUseId"]
        assert results.get(use, at + 1) > at
        if with_tools and name in ("add", "fails"):
            assert use in results
            if lines and not any(_has_result(line, use) for line in lines):
                assert block["status"] == ("success" if name == "add" else "error")
    if is_whole:
        texts = [line["block"]["content"] for line in lines if "content" in line.get("block", {})]
        assert [b["content"] for b in blocks if b["type"] == "assistant_text"] == texts
    events = [
        orjson.loads(line)
        for file in paths.folder.glob("transcripts/*.jsonl")
        for line in file.read_bytes().splitlines()
    ]
    in_transcript = {e["block"]["id"]: e["block"] for e in events if "block" in e}
    assert [b["id"] for b in in_transcript.values()] == [b["id"] for b in blocks]
    if is_whole:
        assert list(in_transcript.values()) == blocks


def _has_result(line: dict[str, Any], use: str) -> bool:
    block = line.get("block", {})
    return block.get("type") == "tool_result" and block["toolUseId"] == use


def test_a_turn_leaves_no_thread_behind(stage: Any) -> None:
    """Handlers that have returned are gone."""
    before = threading.active_count()
    calls = [ToolCall("add", {"a": number, "b": 1}) for number in range(20)]
    with model(lambda request: "so" if request.results else calls):
        run_turn(stage, stage.new(provider=MODEL), add)
    until(lambda: threading.active_count() <= before, "the handlers' threads are gone")


def test_a_call_for_which_the_system_has_no_thread_is_a_result_that_is_an_error(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model reads it, and the turn goes on."""

    def refuses(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    call = ToolCall("add", {"a": 1, "b": 1})
    with model(lambda request: "so" if request.results else [call]):
        paths = stage.new(provider=MODEL)
        monkeypatch.setattr(threading.Thread, "start", refuses)
        assert run_turn(stage, paths, add).response == "so"
    assert [block["isError"] for block in logged(stage, paths) if "isError" in block] == [True]


def test_what_a_handler_shows_after_its_turn_is_not_kept(stage: Any) -> None:
    """As one that was left behind and goes on; nothing takes it any more."""
    contexts: list[Any] = []
    keep = create_tool("keep", {"type": "object"}, lambda _, context: contexts.append(context))
    with model(lambda request: "so" if request.results else [ToolCall("keep", {})]):
        run_turn(stage, stage.new(provider=MODEL), keep)

    tracemalloc.start()
    try:
        for number in range(500):
            contexts[0].emit({"shown": f"{number}" * 1000})
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100_000


def test_an_agent_that_carries_out_its_own_calls_yields_their_results(stage: Any) -> None:
    """They are logged as those of the engine are, and the agent is not called again for them."""
    asked = []

    def agent(request: Any) -> Any:
        asked.append(request.tick)
        yield "let me see"
        yield ToolCall("add", {"a": 1, "b": 2}, "sum")
        yield ToolResult("sum", 3)
        yield ToolCall("divide", {"by": 0}, "share")
        yield ToolResult("share", "by zero", is_error=True)
        yield "it is 3"

    with model(agent):
        paths = stage.new(provider=MODEL)
        result = run_turn(stage, paths, add)
    assert (asked, result.tools_used) == ([1], {"add": 1, "divide": 1})
    assert said(logged(stage, paths)) == [
        ("user_message", "hi"),
        ("assistant_text", "let me see"),
        ("tool_use", "success"),
        ("tool_result", 3),
        ("tool_use", "error"),
        ("tool_result", "by zero"),
        ("assistant_text", "it is 3"),
    ]


def test_a_result_without_its_call_is_no_answer(stage: Any) -> None:
    """The turn fails, and says which call is missing."""
    with model(lambda _request: [ToolResult("sum", 3)]):
        paths = stage.new(provider=MODEL)
        with pytest.raises(ProviderError, match="no call 'sum'") as failed:
            run_turn(stage, paths)
    assert failed.value.kind == "bad-answer"


def test_a_script_can_be_written_as_what_the_model_does(stage: Any, tmp_path: Path) -> None:
    """Texts, calls one after the other and at once, a failure, and lines as they are."""

    def sums(a: int, b: int) -> ToolCall:
        return ToolCall("add", {"a": a, "b": b})

    path = script.write_script(
        tmp_path / "model.jsonl",
        ["let me see", sums(1, 2), [sums(3, 4), sums(5, 6)], {"type": "sleep", "seconds": 0}, "so"],
        [ProviderError("try later", kind="rate-limited")],
    )
    paths = stage.new(provider="script", options={"file": path})
    result = run_turn(stage, paths, add)
    assert [out for kind, out in said(logged(stage, paths)) if kind == "tool_result"] == [3, 7, 11]
    assert result.response == "let me see\n\nso"
    with pytest.raises(ProviderError, match="try later") as failed:
        run_turn(stage, paths)
    assert failed.value.kind == "rate-limited"
