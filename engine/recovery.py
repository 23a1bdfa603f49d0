"""Recovery: what a crash, or an agent that could not be written to, left undone (D3, D16)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.hooks import turn_ended
from agentsdir.engine.inbox import find_message
from agentsdir.engine.lookup import each_of, find_readable
from agentsdir.engine.notices import (
    Step,
    Subagent,
    abort_pending_steps,
    apply_steps,
    completion_steps,
    find_child,
    is_spawned_block,
    resent_step,
)
from agentsdir.engine.providers import NativeRecords, return_to_primary
from agentsdir.engine.result import Ending, TurnResult
from agentsdir.engine.sync import lost_streams
from agentsdir.formats.blocks import block_key, make_block
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.events import BROKEN, waiting_message
from agentsdir.formats.store.log import read_records
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentsdir.engine.services import Services
    from agentsdir.formats.errors import AgentsdirError
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

# Turns whose process died. The ids of the records are derived from the turn, and a record that is
# there already is left out: recovery can be killed at any point and repeated.

INTERRUPTED = "The process died before this call returned."
# The fields that a call needs to be answered; a log of another program may lack some.
_CALLS = {
    "tool_use": {"id", "conversationId", "sessionId", "toolUseId"},
    "subagent": {"id", "conversationId"},
}

_KEPT = ("notice", "reply_to")
GONE = "it was removed before it ended"


def close_crashed_turn(
    services: Services, paths: AgentPaths, known: AgentState | None = None
) -> AgentState:
    """End a turn that a dead holder left open, with its notices; return the agent's state.

    The caller holds `.turn`. Raises what `write_agent` raises (`known` is its argument).
    """
    with write_agent(paths, disk=services.disk, known=known) as writer:
        state = writer.state
    if state.open_turn is None and state.session.state is not SessionState.TERMINATED:
        return state
    return end_crashed_turn(services, paths, state)


def end_crashed_turn(services: Services, paths: AgentPaths, state: AgentState) -> AgentState:
    """End an open turn without a holder, and the messages of a closed agent, with all notices.

    The caller holds `.turn`. Raises what `write_agent` raises.
    """
    if state.open_turn is not None:
        with write_agent(paths, disk=services.disk, known=state) as writer:
            writer.finish_rewrites()
    plan = plan_crash(services.layout, paths, state, RecoveryRecords.of_log(paths, state))
    state = apply_steps(services, paths, state, plan.steps)
    if plan.streams:
        with write_agent(paths, disk=services.disk, known=state) as writer:
            for path in plan.streams:
                writer.remove(path)
    plan.run_hooks(services, paths, state)
    return state


class RecoveryRecords:
    """What recovery needs of a log and the state does not hold, taken record by record.

    It holds what belongs to the open turn, the messages that wait, and no more, however long the
    log is. `turn` is None while no turn is open.
    """

    def __init__(self) -> None:
        self.turn: TurnRecords | None = None
        self.messages: dict[str, dict[str, Any]] = {}
        self.natives = NativeRecords()
        self.first_turn = FirstTurn()

    @classmethod
    def of_log(cls, paths: AgentPaths, state: AgentState) -> RecoveryRecords:
        """Return what a log has for the state that it leads to. Raises as `open_plain` does."""
        found = cls()
        for record in read_records(paths.log):
            found.take(state, record)
        return found

    def take(self, state: AgentState, record: Record) -> None:
        """Take the next record; `state` is the fold up to it, or a later one."""
        event, data = record.event, record.data
        turn = state.open_turn
        if turn is None:
            self.turn = None
        else:
            if self.turn is None or self.turn.turn_id != turn["turnId"]:
                self.turn = TurnRecords(turn["turnId"])
            self.turn.take(record)
        if event == "message.enqueued":
            with suppress(*BROKEN):
                self.messages[data["message_id"]] = waiting_message(data, record.ts)
        elif event == "message.delivered" and isinstance(settled := data.get("message_id"), str):
            self.messages.pop(settled, None)
        self.natives.take(record)
        self.first_turn.take(record)


class CrashPlan(NamedTuple):
    """The steps that end an open turn, in order.

    `streams` are those of the turn that the log has in full afterwards. `ended` is how the turn
    ended, and `message` what it ran, as it stood in the inbox.
    """

    steps: list[Step]
    streams: list[Path]
    ended: TurnResult | None = None
    error: AgentsdirError | None = None
    message: dict[str, Any] | None = None

    def run_hooks(self, services: Services, paths: AgentPaths, state: AgentState) -> None:
        """Run the hooks for the end of the turn, which its own process did not live to do.

        Args:
            state: the agent's, after the steps.
        """
        if self.ended is not None:
            result = self.ended.of_agent(state)
            turn_ended(services, paths, state, self.message, result, self.error)


def plan_crash(
    layout: Layout, paths: AgentPaths, state: AgentState, seen: RecoveryRecords
) -> CrashPlan:
    """Return how an open turn is ended. Writes nothing.

    Args:
        seen: taken from the log up to `state`.
    """
    turn = state.open_turn
    if turn is None:
        return CrashPlan(_pending_steps_if_closed(layout, state), [])
    turn_id = turn["turnId"]
    records = seen.turn or TurnRecords(turn_id)
    streams = lost_streams(paths, state, records.blocks)
    steps = []
    ending = records.ending
    outcome = turn["ended"]
    if not outcome:
        outcome = "failed"
        open_calls = records.open_calls
        for stream in streams:
            for block in stream.blocks:
                summary = f"kept what block {block['id']} came to"
                steps.append(Step(summary, "block", _block(turn_id, block)))
                if block["type"] == "tool_use" and _is_open(block, records.results):
                    open_calls.append(block)
        steps += _close_calls(records, open_calls, INTERRUPTED)
        aborted = {"turn_id": turn_id, "reason": "crash"}
        steps.append(Step(f"ended turn {turn_id}", "turn.aborted", aborted))
        ending = Ending(aborted="crash")
    if (back := return_to_primary(paths, state, seen.natives)) is not None:
        steps.append(Step("went back to the agent's own native session", "native.changed", back))
    message = next((seen.messages.get(one) for one in turn["messageIds"]), None)
    for step in completion_steps(layout, state, turn_id, message, ending, again=True):
        if step.event != "outgoing" or (step.data or {})["message_id"] not in records.texts:
            steps.append(step)
    for message_id in turn["messageIds"]:
        delivered = {"message_id": message_id, "outcome": outcome}
        summary = f"settled message {message_id}: {outcome}"
        steps.append(Step(summary, "message.delivered", delivered))
    redundant = [stream.path for stream in streams if stream.is_redundant]
    ended = TurnResult(
        next(iter(turn["messageIds"]), None), turn_id, outcome, ending.text, None, None
    )
    return CrashPlan(
        [*steps, *_pending_steps_if_closed(layout, state)],
        redundant,
        ended if ending.is_success else ended._replace(response=""),
        ending.as_error(),
        message,
    )


def _pending_steps_if_closed(layout: Layout, state: AgentState) -> list[Step]:
    """Return the steps that abort the messages of a closed agent, after a crash of `close`."""
    is_closed = state.session.state is SessionState.TERMINATED
    return abort_pending_steps(layout, state) if is_closed else []


def open_call_steps(paths: AgentPaths, turn_id: str, why: str) -> list[Step]:
    """Return the steps that answer the open calls of a turn that is about to end.

    Args:
        why: the text of the synthetic results.
    """
    records = TurnRecords(turn_id)
    for record in read_records(paths.log):
        records.take(record)
    return _close_calls(records, records.open_calls, why)


class TurnRecords:
    """The records of one turn, taken from the log one by one.

    `blocks` are the keys of its blocks, `results` maps each answered call to its tool_result, and
    `texts` are the ids of outgoing texts since it started.
    """

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.ending = Ending(aborted="crash")
        self.blocks: set[tuple[str, str]] = set()
        self.results: dict[tuple[str, str], dict[str, Any]] = {}
        self.texts: set[str] = set()
        self._calls: dict[tuple[str, str], dict[str, Any]] = {}

    def take(self, record: Record) -> None:
        """Take the next record of the log; those of other turns change nothing."""
        event, data = record.event, record.data
        if event == "outgoing":
            self.texts.add(str(data.get("message_id")))
        elif data.get("turn_id") != self.turn_id:
            return
        elif (ended := Ending.of_record(event, data)) is not None:
            self.ending = ended
        elif event == "block" and isinstance(block := data.get("block"), dict):
            self.blocks.add(block_key(block))
            needed = _CALLS.get(str(block.get("type")))
            if needed is not None and needed <= block.keys() and not is_spawned_block(block):
                self._calls[_key(block)] = block
            elif block.get("type") == "tool_result":
                self.results[_key(block)] = block

    @property
    def open_calls(self) -> list[dict[str, Any]]:
        """The calls that have no answer, in order."""
        return [call for call in self._calls.values() if _is_open(call, self.results)]


def _key(block: dict[str, Any]) -> tuple[str, str]:
    return str(block.get("conversationId")), str(block.get("toolUseId") or block.get("id"))


def _is_open(call: dict[str, Any], results: dict[tuple[str, str], dict[str, Any]]) -> bool:
    # A synthetic result without the end of its call: recovery was killed between the two.
    answered = results.get(_key(call), {"synthetic": True})
    return call.get("status") in ("pending", "running") and bool(answered.get("synthetic"))


def _close_calls(records: TurnRecords, calls: list[dict[str, Any]], why: str) -> list[Step]:
    steps = []
    for call in calls:
        answered = _key(call) in records.results
        steps += _close_call(records.turn_id, call, why, answered=answered)
    return steps


def _close_call(turn_id: str, call: dict[str, Any], why: str, *, answered: bool) -> list[Step]:
    """Return the steps that answer a call which will not return."""
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


# Messages that another agent's log did not take (docs/behaviour.md, "restore"). The log of the
# sender has them as `message.unsent`. The next `restore` of either agent puts each into the inbox
# once, and settles it with `message.resent`.


def agents_with_unsent(layout: Layout, agents: set[str]) -> dict[str, list[AgentPaths]]:
    """Return, by the receiving agent's id, the other agents that have unsent messages for it."""
    found: dict[str, list[AgentPaths]] = {}
    for sender in each_of(layout, (one for one in layout.agent_ids() if one not in agents)):
        unsent = sender.document.get("unsent", {}) if sender.document is not None else {}
        for to in {entry["to"] for entry in unsent.values()} & agents:
            found.setdefault(to, []).append(sender.paths)
    return found


def resend_steps(layout: Layout, state: AgentState) -> list[Step]:
    """Return the steps that resend an agent's unsent messages.

    Messages to agents that are archived or damaged stay; those to removed or closed agents are
    dropped.
    """
    steps: list[Step] = []
    for message_id, entry in state.unsent.items():
        found = find_readable(layout, entry["to"])
        if found is None and layout.is_taken(entry["to"]):
            continue
        if found is None or found[1].session.state is SessionState.TERMINATED:
            steps.append(resent_step(message_id, "dropped"))
        elif find_message(found[0], message_id) is not None:
            steps.append(resent_step(message_id, "delivered"))
        else:
            data = _as_sent(state, entry["message"])
            summary = f"told {found[0].id} what could not be told before"
            steps.append(Step(summary, "message.enqueued", data, found[0], resends=message_id))
    return steps


def receive_steps(
    layout: Layout, paths: AgentPaths, state: AgentState, senders: Iterable[AgentPaths]
) -> list[Step]:
    """Return the steps that put the unsent messages of other agents into an agent's inbox."""
    if state.session.state is SessionState.TERMINATED:
        return []
    steps: list[Step] = []
    for sender in senders:
        found = find_readable(layout, sender.id)
        for message_id, entry in found[1].unsent.items() if found is not None else ():
            if entry["to"] != paths.id or found is None:
                continue
            if find_message(paths, message_id) is None:
                data = _as_sent(found[1], entry["message"])
                summary = f"was told what {sender.id} could not tell it before"
                steps.append(Step(summary, "message.enqueued", data))
            steps.append(resent_step(message_id, "delivered", sender))
    return steps


def _as_sent(sender: AgentState, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as its sender may send it: in its own name, without flags."""
    kept: dict[str, Any] = {name: message[name] for name in _KEPT if name in message}
    data = {"message_id": message["message_id"], "content": message["content"]}
    return {**data, "sender": sender.agent_id, "kind": "system", **kept}


# Ends of subagents that are missing in the log of their parent: it was archived or could not be
# written, or the subagent was removed (docs/behaviour.md, "Spawning").


def missing_child_steps(layout: Layout, paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return the missing records of a parent's log about its subagents; none if it is closed."""
    steps: list[Step] = []
    gone = [child_id for child_id in state.children if not layout.is_taken(child_id)]
    if gone:
        # It may have ended and been removed since the state was read.
        state = read_agent(paths).state
    for child_id, known in state.children.items():
        if state.session.state is SessionState.TERMINATED or child_id not in gone:
            continue
        one = Subagent(child_id, known["name"])
        block = {"turn_id": None, "block": one.block(state, "error", f"Removed: {GONE}.")}
        steps.append(Step(f"marked subagent {child_id}: {GONE}", "block", block))
        data = {"child": child_id, "name": one.name, "status": "error", "detail": GONE}
        steps.append(Step(f"said that subagent {child_id} is gone", "agent.spawned", data))
    for child_id in state.children:
        child = find_child(layout, state, child_id)
        if child is not None and state.session.state is not SessionState.TERMINATED:
            first_turn = FirstTurn()
            for record in read_records(child[0].log):
                first_turn.take(record)
                if first_turn.is_over:
                    break
            missing = _missing_in_parent(layout, paths, child[1], first_turn)
            steps += [step._replace(to=None) for step in missing]
    return steps


def missing_parent_steps(
    layout: Layout, paths: AgentPaths, state: AgentState, first_turn: FirstTurn
) -> list[Step]:
    """Return the records about a subagent's end that its parent's log lacks."""
    found = find_readable(layout, state.parent) if state.parent else None
    if found is None or paths.id not in found[1].children or state.parent == paths.id:
        return []
    closed = found[1].session.state is SessionState.TERMINATED
    return [] if closed else _missing_in_parent(layout, found[0], state, first_turn)


class FirstTurn:
    """The first turn of a subagent, taken from its log record by record.

    Attributes:
        prompt: its message as it stood in the inbox; None if the agent was not spawned.
        turn_id: empty if the message was settled without a turn.
        is_over: whether the message is settled. Before that, the process of the turn still applies
            its steps.
    """

    def __init__(self) -> None:
        self.prompt: dict[str, Any] | None = None
        self.turn_id = ""
        self.ending = Ending(aborted="close")
        self.is_over = False

    def take(self, record: Record) -> None:
        """Take the next record of the log."""
        if self.is_over:
            return
        data, prompt = record.data, self.prompt
        if prompt is None:
            if record.event == "message.enqueued" and data.get("spawn") is True:
                with suppress(*BROKEN):
                    self.prompt = waiting_message(data, record.ts)
        elif record.event == "turn.start":
            named = data.get("message_ids")
            if isinstance(named, list) and prompt["messageId"] in named:
                self.turn_id = str(data.get("turn_id"))
        elif record.event == "message.delivered" and data.get("message_id") == prompt["messageId"]:
            self.is_over = True
        elif self.turn_id and data.get("turn_id") == self.turn_id:
            self.ending = Ending.of_record(record.event, data) or self.ending


def _missing_in_parent(
    layout: Layout, parent: AgentPaths, child: AgentState, first: FirstTurn
) -> list[Step]:
    """Return the steps for the parent from the end of a subagent's first turn, if it has ended."""
    if not first.is_over:
        return []
    turn_id = first.turn_id or child.agent_id
    steps = completion_steps(layout, child, turn_id, first.prompt, first.ending, again=True)
    return [step for step in steps if step.to and step.to.id == parent.id]
