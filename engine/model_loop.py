"""The model and its tools: model calls of a turn, and the tool calls between them.

docs/behaviour.md, "Tools". Handlers run in threads; all that is logged or shown comes from the
turn's own thread, which takes the events of `ModelLoop.events` one by one.
"""

from __future__ import annotations

import time
from contextlib import suppress
from contextvars import copy_context
from copy import deepcopy
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.protocol import (
    Decision,
    ModelRequest,
    ToolCall,
    ToolRequest,
    ToolSchema,
)
from agentsdir.engine.runner import overrides, runner_errors
from agentsdir.engine.tools import ToolContext, ToolOutput, as_output, failed, settled
from agentsdir.formats import blocks, jsontext, signals
from agentsdir.formats.blocks import MAIN
from agentsdir.formats.errors import AgentsdirError, Invalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from agentsdir.adapters.protocol import Content, ModelSession, SessionSpec
    from agentsdir.engine.extensions import Extensions
    from agentsdir.engine.limits import TickCounter
    from agentsdir.formats.blocks import Block, StreamEvent

GRACE = 2.0
"""Seconds that handlers have to return when the turn is to end."""
_OF_THE_BLOCK = frozenset({"type", "id", "conversationId", "sessionId"})
"""Fields that say which block it is."""
_NO_RESULT: tuple[Block, ...] = ()


class LoopSurroundings(NamedTuple):
    """What the loop needs from its turn.

    Attributes:
        agent_id: whose turn it is.
        session_id: the session's id.
        turn_id: the turn's id.
        timeline: returns the conversation up to now.
        confirm: decides about a call of a tool that needs permission.
        ticks: counts the model calls, as their events are taken.
        is_cancelled: returns whether the turn is to end.
        on_call: called before each model call, and before the runner prepares its input.
    """

    agent_id: str
    session_id: str
    turn_id: str
    timeline: Callable[[], Sequence[Block]]
    confirm: Callable[[ToolRequest], Decision]
    ticks: TickCounter
    is_cancelled: Callable[[], bool]
    on_call: Callable[[], None] = lambda: None


class _Execution:
    """A call of the model without a result; `output` is there when its handler has returned."""

    def __init__(self, handle: str, block: Block) -> None:
        self.handle = handle
        self.block = block
        # The handler may change what it is given; the block is written again.
        self.call = ToolCall(block["toolName"], deepcopy(block["input"]), block["toolUseId"])
        self.began = time.monotonic()
        self.ended = 0.0
        self.output: ToolOutput | None = None
        self.result: Block | None = None

    def finish(self, output: ToolOutput) -> None:
        """Keep the output."""
        self.ended = time.monotonic()
        self.output = output


class ModelLoop:
    """Calls the model of a session, carries out its calls, and calls it again, until it is done.

    `is_limited` says that the model would have been called once more than it may be.
    """

    def __init__(
        self,
        session: ModelSession,
        spec: SessionSpec,
        extensions: Extensions,
        around: LoopSurroundings,
    ) -> None:
        self._session = session
        self._spec = spec
        self._extensions = extensions
        self._around = around
        runner = extensions.runner
        self._methods = overrides(runner) if runner is not None else frozenset()
        self._news: SimpleQueue[StreamEvent | None] = SimpleQueue()
        self._running: list[_Execution] = []
        self._answered: set[str] = set()
        self._signal = Event()
        self._is_over = False
        self.is_limited = False

    def events(self, content: Content) -> Iterator[StreamEvent]:
        """Yield the events of a turn, results of tool calls among them.

        Raises what the provider and `signals.check` raise, and `AgentsdirError` (kind
        ``runner-failed``) for a runner that does not prepare the model's input.
        """
        yield self._session.prompt(content)
        results, ticks = _NO_RESULT, self._around.ticks
        number = 0
        while True:
            if ticks.limit is not None and ticks.count >= ticks.limit:
                self.is_limited = True
                return
            number += 1
            self._around.on_call()
            calls = yield from self._call_model(self._request(content, results, number))
            signals.check()
            if not any(self._carries_out(one.call.name) for one in calls):
                return
            yield from self._start(calls)
            while self._running:
                yield from self._wait()
                signals.check()
            results = tuple(one.result for one in calls if one.result is not None)

    def interrupt(self) -> Iterator[StreamEvent]:
        """End the turn; yield the results of the handlers that return soon."""
        self._signal.set()
        deadline = time.monotonic() + GRACE
        while self._running and time.monotonic() < deadline:
            yield from self._wait()
        self._running.clear()
        yield from self._session.interrupt()

    def stop(self) -> None:
        """Let handlers that still run know that nothing waits for them."""
        self._signal.set()
        self._is_over = True

    def _request(self, content: Content, results: tuple[Block, ...], number: int) -> ModelRequest:
        tools = self._extensions.tools.values()
        request = ModelRequest(
            content,
            results,
            number,
            self._spec.system_prompt,
            self._spec.model,
            tuple(ToolSchema(one.name, one.description, one.input_schema) for one in tools),
            self._around.timeline,
            self._carries_out,
            self._around.is_cancelled,
        )
        runner = self._extensions.runner
        if runner is None or "prepare_model_input" not in self._methods:
            return request
        with runner_errors(runner.name):
            prepared = settled(runner.prepare_model_input(request, tuple(tools)))
        if not isinstance(prepared, ModelRequest):
            raise AgentsdirError(
                f"the runner {runner.name!r} prepared a {type(prepared).__name__}, which is no "
                "input of a model",
                kind="runner-failed",
            )
        return prepared

    def _call_model(self, request: ModelRequest) -> Generator[StreamEvent, None, list[_Execution]]:
        """Call the model once; return its calls that have no result."""
        calls: dict[str, _Execution] = {}
        for event in self._session.call_model(request):
            yield event
            block = event.get("block")
            if event["type"] != "block_complete" or block is None:
                continue
            if event["conversationId"] != MAIN or block.get("superseded"):
                continue
            if block["type"] == "tool_result":
                self._answered.add(block["toolUseId"])
                calls.pop(block["toolUseId"], None)
            elif block["type"] == "tool_use" and block["toolUseId"] not in self._answered:
                calls[block["toolUseId"]] = _Execution(event["blockId"], block)
        return [*calls.values()]

    def _carries_out(self, name: str) -> bool:
        return name in self._extensions.tools or "execute_tool_call" in self._methods

    def _start(self, calls: list[_Execution]) -> Iterator[StreamEvent]:
        """Start the handlers of the calls that are allowed; answer those that are not."""
        allowed = []
        for one in calls:
            decision = self._decision(one.call)
            if not decision.allowed:
                one.finish(ToolOutput(decision.reason or "permission was denied", is_error=True))
                yield from self._answer(one)
                continue
            if decision.input is not None:
                one.call = one.call._replace(input=decision.input)
            allowed.append(one)
        for one in allowed:
            yield blocks.block_update(one.handle, {"status": "running"}, MAIN)
            one.began = time.monotonic()
            carry_out = partial(copy_context().run, self._carry_out, one)
            self._running.append(one)
            try:
                Thread(target=carry_out, name=f"tool {one.call.name}", daemon=True).start()
            except RuntimeError as error:  # the system has no more threads
                one.finish(failed(error))

    def _decision(self, call: ToolCall) -> Decision:
        tool = self._extensions.tools.get(call.name)
        if tool is None or not tool.requires_confirmation:
            return Decision(allowed=True)
        return self._around.confirm(ToolRequest(call.name, call.id, call.input, rule=call.name))

    def _carry_out(self, one: _Execution) -> None:
        """Carry out a call, in its own thread. Whatever it raises is its result."""
        call = one.call
        tool, runner = self._extensions.tools.get(call.name), self._extensions.runner
        around = self._around
        context = ToolContext(
            around.agent_id,
            around.session_id,
            around.turn_id,
            call.id,
            self._extensions.spawn,
            partial(self._emit, one),
            self._signal,
            self._extensions.context,
        )

        def proceed() -> ToolOutput:
            if tool is None:
                return ToolOutput(f"there is no tool {call.name!r:.140}", is_error=True)
            return tool.run(call.input, context)

        try:
            with signals.looking(self._interrupt_once(), alone=True):
                if runner is None or "execute_tool_call" not in self._methods:
                    one.finish(proceed())
                else:
                    one.finish(as_output(runner.execute_tool_call(call, tool, proceed)))
        except BaseException as error:  # noqa: BLE001, an exit ends the call, and no more
            one.finish(failed(error))
        self._news.put(None)

    def _interrupt_once(self) -> Callable[[], None]:
        """Return what breaks off the waits of a handler, such as those for a child, at the end."""
        interrupted = False

        def look() -> None:
            nonlocal interrupted
            if self._signal.is_set() and not interrupted:
                interrupted = True
                raise KeyboardInterrupt

        return look

    def _emit(self, one: _Execution, updates: dict[str, Any]) -> None:
        """Have the turn's thread show fields of a call. Raises `UsageError` for what is none."""
        try:
            shown = jsontext.decode(jsontext.encode(updates))
        except Invalid as error:
            raise UsageError(f"a tool emitted what is no JSON: {error.message}") from error
        if not isinstance(shown, dict) or not _OF_THE_BLOCK.isdisjoint(shown):
            raise UsageError("a tool emits an object of fields, which do not name another block")
        if not self._is_over:
            self._news.put(blocks.block_update(one.handle, shown, MAIN))

    def _wait(self) -> Iterator[StreamEvent]:
        """Yield what handlers emitted, and the results of those that have returned, in order."""
        news: list[StreamEvent | None] = []
        with suppress(Empty):
            news.append(self._news.get(timeout=signals.PAUSE))
        # Before the rest is taken: what they emitted is there by then.
        returned = [one for one in self._running if one.output is not None]
        # No more than these, of a handler that emits without end.
        news += [self._news.get() for _ in range(self._news.qsize())]
        yield from (event for event in news if event is not None)
        for one in returned:
            self._running.remove(one)
            yield from self._answer(one)

    def _answer(self, one: _Execution) -> Iterator[StreamEvent]:
        assert one.output is not None
        took = max(round((one.ended - one.began) * 1000), 0)
        self._answered.add(one.call.id)
        output, is_error = one.output
        for event in self._session.take_result(one.block, output, took, is_error=is_error):
            if event["block"]["type"] == "tool_result":
                one.result = event["block"]
                yield event
            else:
                yield {**event, "blockId": one.handle}
