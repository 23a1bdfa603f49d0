"""Models that a function of the program calls: what it may answer, and what is left of it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import run_here
from looping import MODEL, logged, model, run_turn, said

from agentsdir import AgentConfig, App
from agentsdir.adapters import registry
from agentsdir.adapters.echo import ARCHITECTURE as ECHO
from agentsdir.adapters.in_process import model_provider
from agentsdir.adapters.protocol import ToolCall
from agentsdir.engine.create import fork_agent
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.tools import create_tool, tool
from agentsdir.formats.blocks import usage
from agentsdir.formats.errors import AgentsdirError, ProviderError, TurnTimeout, UsageError

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


@tool
def count(text: str) -> int:
    """Count the letters of a text."""
    return len(text)


def test_the_model_of_the_page_counts_letters(stage: Any) -> None:
    """The one of docs/adapters.md, as it is printed there."""
    (source,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if "model_provider" in block
    )
    try:
        exec(compile(source, str(PAGE), "exec"), {})
        paths = stage.new(provider="counter")
        result = run_turn(stage, paths, count, text="letters")
    finally:
        registry.unregister("counter")
    assert result.response == "Let me count. \n\nIt has 7 letters."


def test_a_model_is_given_the_settings_of_its_agent_and_what_was_said_in_all_turns(
    stage: Any,
) -> None:
    """Not what was said before a reset."""
    seen: list[Any] = []

    def call(request: Any) -> Any:
        seen.append((request.system, request.model, said(request.timeline())))
        return f"answer {len(seen)}"

    with model(call):
        paths = stage.new(provider=MODEL, system_prompt="be brief", model="tiny")
        run_turn(stage, paths, text="one")
        run_turn(stage, paths, text="two")
    first = [("user_message", "one")]
    both = [*first, ("assistant_text", "answer 1"), ("user_message", "two")]
    assert seen == [("be brief", "tiny", first), ("be brief", "tiny", both)]
    answers = [b for b in logged(stage, paths) if b["type"] == "assistant_text"]
    assert [b["model"] for b in answers] == ["tiny", "tiny"]


def test_usage_is_that_of_each_call_and_is_added_up(stage: Any) -> None:
    """So is what several pieces of one call say; the end of the turn has the sum."""

    def call(request: Any) -> Any:
        yield {"type": "metadata_update", "metadata": {"usage": usage(1, 10), "costUSD": 0.5}}
        if not request.results:
            yield ToolCall("count", {"text": "x"})
        yield {"type": "metadata_update", "metadata": {"stopReason": "length"}}

    with model(call):
        paths = stage.new(provider=MODEL)
        for _ in range(2):
            result = run_turn(stage, paths, count)
            assert (result.usage, result.stop_reason) == (usage(2, 20), "length")


def test_stream_events_become_blocks_of_the_session(stage: Any) -> None:
    """With ids of their own in each call and turn; a text that is open is completed before them."""

    def call(request: Any) -> Any:
        yield "It "
        yield "began"
        block = {"type": "thinking", "id": "t", "content": ""}
        yield {"type": "block_start", "blockId": "t", "block": block}
        yield {"type": "text_delta", "blockId": "t", "delta": "hm"}
        yield {"type": "block_complete", "blockId": "t", "block": {**block, "content": "hm"}}
        yield "and ended"
        if not request.results:
            yield ToolCall("count", {"text": "x"})

    with model(call):
        paths = stage.new(provider=MODEL)
        for _ in range(2):
            run_turn(stage, paths, count)
    once = [("assistant_text", "It began"), ("thinking", "hm"), ("assistant_text", "and ended")]
    turn = [
        ("user_message", "hi"),
        *once,
        ("tool_use", "success"),
        ("tool_result", 1),
        *once,
    ]
    assert said(logged(stage, paths)) == turn * 2
    uses = [b["toolUseId"] for b in logged(stage, paths) if b["type"] == "tool_use"]
    assert len(set(uses)) == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        {"type": "metadata_update", "metadata": {}},
        [7],
        [None],
        [{"type": "no event"}],
        [{"type": "block_complete", "blockId": "b"}],
        [{"type": "block_complete", "blockId": "b", "block": {"type": "thinking", "id": "b"}}],
        ToolCall("count", {}),
    ],
)
def test_what_is_no_answer_fails_the_turn(stage: Any, answer: Any) -> None:
    """It says what is wrong; the agent goes on with the next message."""
    with model(lambda request: answer if request.content == "hi" else "fine"):
        paths = stage.new(provider=MODEL)
        with pytest.raises(ProviderError) as failed:
            run_turn(stage, paths)
        assert failed.value.kind == "bad-answer"
        assert run_turn(stage, paths, text="again").response == "fine"


def test_halves_of_a_character_are_joined_and_one_alone_is_replaced(stage: Any) -> None:
    """A model's pieces may be cut anywhere."""
    with model(lambda _: ["a\ud83d", "\ude00b", "\ud83d"]):
        paths = stage.new(provider=MODEL)
        assert run_turn(stage, paths).response == "a😀b�"


@pytest.mark.parametrize("ticks", [1, 2])
def test_a_call_id_that_the_turn_has_used_is_no_answer(stage: Any, ticks: int) -> None:
    """Its call would have no result; the id of another turn is a new one."""

    def call(request: Any) -> Any:
        if request.tick < ticks:
            return [ToolCall("count", {"text": "x"}, "one")]
        return [ToolCall("count", {"text": "xx"}, "one")] * (3 - ticks)

    with model(call):
        paths = stage.new(provider=MODEL)
        for _ in range(2):
            with pytest.raises(ProviderError, match="two calls of the turn have the id 'one'"):
                run_turn(stage, paths, count)


def test_a_model_that_yields_nothing_for_ever_is_ended_by_the_time_limit(tmp_path: Path) -> None:
    """Empty pieces make no events, after which a turn looks whether to go on."""

    def call(_request: Any) -> Any:
        while True:
            time.sleep(0.001)
            yield ""

    with (
        model(call),
        App(AgentConfig(provider=MODEL), root=tmp_path) as app,
        pytest.raises(TurnTimeout),
    ):
        _ = app.session().send.with_timeout(0.2)("hi").result


def test_a_name_is_registered_once() -> None:
    """The same architecture again is fine; a built-in one is never replaced."""
    one = model_provider("one", lambda _: "x")
    try:
        registry.register(one)
        registry.register(one)
        assert registry.get("one") is one
        for taken in (model_provider("one", lambda _: "y"), ECHO):
            with pytest.raises(UsageError) as refused:
                registry.register(taken)
            assert refused.value.kind == "name-taken"
    finally:
        registry.unregister("one")
    with pytest.raises(UsageError) as unknown:
        registry.get("one")
    assert unknown.value.kind == "no-such-adapter"


def test_a_fork_goes_on_and_a_recovery_finds_nothing_to_do(stage: Any) -> None:
    """The transcript is a recorded one, as that of `echo`."""
    with model(lambda request: f"{len(request.timeline())}"):
        paths = stage.new(provider=MODEL)
        run_turn(stage, paths)
        before = stage.events(paths)
        restore_agent(stage.services, paths)
        assert stage.events(paths)[len(before) :] == ["session.state"]  # it is suspended
        fork = stage.services.layout.agent(fork_agent(stage.services, paths, login="me").agent_id)
        assert run_turn(stage, fork).response


def test_an_agent_whose_model_is_in_another_program_can_be_read(stage: Any, tmp_path: Path) -> None:
    """Its log and transcript; what needs the adapter fails, and says so."""
    broken = create_tool("broken", {"type": "object"}, lambda _: 1 / 0)

    def call(request: Any) -> Any:
        if not request.results:
            yield ToolCall("count", {"text": "four"})
            yield ToolCall("broken", {})
        yield "done"

    with model(call):
        paths = stage.new(provider=MODEL, name="it")
        run_turn(stage, paths, count, broken)
    variables = {"HOME": str(tmp_path), "AGENTSDIR_ROOT": str(stage.root)}

    def run(*arguments: str) -> Any:
        return run_here(*arguments, variables=variables, cwd=tmp_path)

    found = run("validate", str(stage.root))
    assert found.code == 0, found
    shown = run("log", "it")
    assert (shown.code, "count" in shown.out) == (0, True)
    wanted = [(b["id"], b.get("status")) for b in logged(stage, paths)]
    parsed = run("parse", *map(str, paths.folder.glob("transcripts/*.jsonl")))
    blocks = [orjson.loads(line) for line in parsed.out.splitlines()]
    assert [(b["id"], b.get("status")) for b in blocks] == wanted
    assert run("inspect", "it", "--runtime").code == 0
    refused = run("send", "it", "hi")
    assert (refused.code, "there is no adapter 'bot'" in refused.err) == (14, True)


def test_a_root_that_is_not_trusted_starts_no_model(stage: Any) -> None:
    """As no other provider."""

    def refuse() -> None:
        raise AgentsdirError("not trusted", kind="untrusted-root")

    asked: list[Any] = []
    with model(lambda request: asked.append(request) or "never"):
        paths = stage.new(provider=MODEL)

        class Distrusting:
            services = stage.services._replace(check_trust=refuse)

        with pytest.raises(AgentsdirError, match="not trusted"):
            run_turn(Distrusting, paths)
    assert asked == []
