"""What a turn leaves open when its process dies, and how it is closed (decisions D3, D16).

Every record added here has an id derived from the turn, and is left out when it is there already:
closing can be killed anywhere and done again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.aftermath import aftermath, give_up_steps
from agentsdir.engine.endings import Ending
from agentsdir.engine.lost_streams import lost_streams
from agentsdir.engine.native_changes import way_back
from agentsdir.engine.spawning.telling import is_spawned
from agentsdir.engine.steps import Step, take_step
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.directory.fold import BROKEN, waiting_message
from agentsdir.formats.directory.log import read_records
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.reading.blocks import block_key, make_block

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState

INTERRUPTED = "The process died before this call returned."
# What a call says that can be answered; another program may have written one that does not.
_CALLS = {
    "tool_use": {"id", "conversationId", "sessionId", "toolUseId"},
    "subagent": {"id", "conversationId"},
}


def close_crashed_turn(
    world: World, paths: AgentPaths, known: AgentState | None = None
) -> AgentState:
    """Return an agent's state, once a turn whose holder died is ended, with its notices.

    The caller holds `.turn`. Raises what `write_agent` raises (`known` is its argument).
    """
    with write_agent(paths, disk=world.disk, known=known) as writer:
        state = writer.state
    if state.open_turn is None and state.session.state is not SessionState.TERMINATED:
        return state
    return end_crashed_turn(world, paths, state)


def end_crashed_turn(world: World, paths: AgentPaths, state: AgentState) -> AgentState:
    """End a turn that is open though nobody runs it, with its notices, and what waits if closed.

    The caller holds `.turn`. Raises what `write_agent` raises.
    """
    if state.open_turn is not None:
        with write_agent(paths, disk=world.disk, known=state) as writer:
            writer.finish_rewrites()
    streams = spent_streams(paths, state)
    for step in crash_steps(world.layout, paths, state):
        state = take_step(world, paths, state, step)
    if streams:
        with write_agent(paths, disk=world.disk, known=state) as writer:
            for path in streams:
                writer.remove(path)
    return state


def spent_streams(paths: AgentPaths, state: AgentState) -> list[Path]:
    """Return the streams of the open turn that nothing needs once `crash_steps` are taken."""
    turn = state.open_turn
    if turn is None:
        return []
    logged = _look_at(paths, turn["turnId"]).blocks
    return [one.path for one in lost_streams(paths, state, logged) if one.is_spent]


def crash_steps(layout: Layout, paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return what closing the open turn takes, in order; nothing without one. Writes nothing."""
    turn = state.open_turn
    if turn is None:
        return _left_waiting(layout, state)
    turn_id = turn["turnId"]
    seen = _look_at(paths, turn_id)
    steps = []
    ending = seen.ending
    outcome = turn["ended"]
    if not outcome:
        outcome = "failed"
        for stream in lost_streams(paths, state, seen.blocks):
            for block in stream.blocks:
                says = f"kept what block {block['id']} came to"
                steps.append(Step(says, "block", _block(turn_id, block)))
                if block["type"] == "tool_use" and _is_open(block, seen.results):
                    seen.open_calls.append(block)
        steps += _close_calls(turn_id, seen, INTERRUPTED)
        aborted = {"turn_id": turn_id, "reason": "crash"}
        steps.append(Step(f"ended turn {turn_id}", "turn.aborted", aborted))
        ending = Ending(aborted="crash")
    if (back := way_back(paths, state)) is not None:
        steps.append(Step("went back to the agent's own native session", "native.changed", back))
    message = next((seen.messages.get(one) for one in turn["messageIds"]), None)
    for step in aftermath(layout, state, turn_id, message, ending, again=True):
        if step.event != "outgoing" or (step.data or {})["message_id"] not in seen.notices:
            steps.append(step)
    for message_id in turn["messageIds"]:
        delivered = {"message_id": message_id, "outcome": outcome}
        says = f"settled message {message_id}: {outcome}"
        steps.append(Step(says, "message.delivered", delivered))
    return [*steps, *_left_waiting(layout, state)]


def _left_waiting(layout: Layout, state: AgentState) -> list[Step]:
    """Settle what waits for an agent that was closed by somebody who died over it."""
    is_closed = state.session.state is SessionState.TERMINATED
    return give_up_steps(layout, state) if is_closed else []


def open_call_steps(paths: AgentPaths, turn_id: str, why: str) -> list[Step]:
    """Return what answers the calls of a turn that is about to end without their results.

    Args:
        why: what the results that are made up say.
    """
    return _close_calls(turn_id, _look_at(paths, turn_id), why)


class _Seen(NamedTuple):
    """What the log has of one turn. `results` maps each answered call to its tool_result.

    `messages` are all of the agent's, as the inbox had them.
    """

    ending: Ending
    blocks: set[tuple[str, str]]
    open_calls: list[dict[str, Any]]
    results: dict[tuple[str, str], dict[str, Any]]
    notices: set[str]
    messages: dict[str, dict[str, Any]]


def _look_at(paths: AgentPaths, turn_id: str) -> _Seen:
    ending = Ending(aborted="crash")
    messages: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], dict[str, Any]] = {}
    results: dict[tuple[str, str], dict[str, Any]] = {}
    notices: set[str] = set()
    blocks: set[tuple[str, str]] = set()
    for record in read_records(paths.log):
        event, data = record.event, record.data
        if event == "outgoing":
            notices.add(str(data.get("message_id")))
        elif event == "message.enqueued":
            with suppress(*BROKEN):
                messages[data["message_id"]] = waiting_message(data, record.ts)
        elif data.get("turn_id") != turn_id:
            continue
        elif (ended := Ending.of_record(event, data)) is not None:
            ending = ended
        elif event == "block" and isinstance(block := data.get("block"), dict):
            blocks.add(block_key(block))
            needed = _CALLS.get(str(block.get("type")))
            if needed is not None and needed <= block.keys() and not is_spawned(block):
                calls[_key(block)] = block
            elif block.get("type") == "tool_result":
                results[_key(block)] = block
    open_calls = [call for call in calls.values() if _is_open(call, results)]
    return _Seen(ending, blocks, open_calls, results, notices, messages)


def _key(block: dict[str, Any]) -> tuple[str, str]:
    return str(block.get("conversationId")), str(block.get("toolUseId") or block.get("id"))


def _is_open(call: dict[str, Any], results: dict[tuple[str, str], dict[str, Any]]) -> bool:
    # A result that we made up, but whose call does not say so yet, is half of our own work.
    answered = results.get(_key(call), {"synthetic": True})
    return call.get("status") in ("pending", "running") and bool(answered.get("synthetic"))


def _close_calls(turn_id: str, seen: _Seen, why: str) -> list[Step]:
    steps = []
    for call in seen.open_calls:
        steps += _close_call(turn_id, call, why, answered=_key(call) in seen.results)
    return steps


def _close_call(turn_id: str, call: dict[str, Any], why: str, *, answered: bool) -> list[Step]:
    """Answer a call that will never return, so that nobody waits for it."""
    failed = {**call, "status": "error"}
    if call["type"] == "subagent":
        failed = {**failed, "output": why, "synthetic": True}
        return [Step(f"closed subagent {call['id']}", "block", _block(turn_id, failed))]
    steps = [Step(f"closed call {call['toolUseId']}", "block", _block(turn_id, failed))]
    if not answered:
        result = make_block(
            "tool_result",
            f"{call['id']}:crash",
            call["conversationId"],
            call["sessionId"],
            call.get("timestamp"),
            None,
            toolUseId=call["toolUseId"],
            output=why,
            isError=True,
            synthetic=True,
        )
        steps.insert(
            0, Step(f"answered call {call['toolUseId']}", "block", _block(turn_id, result))
        )
    return steps


def _block(turn_id: str, block: dict[str, Any]) -> dict[str, Any]:
    return {"turn_id": turn_id, "block": block}
