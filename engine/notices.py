"""Completion notices: the records that report the end of a turn, and the step that appends each.

See decisions D3, D18, D19, D25 and D28; docs/behaviour.md, "After a turn".
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.inbox import Message, find_message, text_message
from agentsdir.engine.lookup import ancestors, find_readable
from agentsdir.engine.result import TERMINAL, Ending, QueuedMessage
from agentsdir.formats.blocks import MAIN, make_block
from agentsdir.formats.errors import AgentsdirError, Busy, Invalid, NoSuchAgent, SessionStateError
from agentsdir.formats.ids import derived_id
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.log import read_records
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from agentsdir.engine.services import Services
    from agentsdir.formats.blocks import Block
    from agentsdir.formats.store.agent import AgentWriter, Reading
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

    Content = Sequence[dict[str, Any]]

_AT_ONCE = 64  # records of one hold
SPAWNED = "spawn:"
"""Prefix of the block id; the rest is the id of the subagent."""


class Step(NamedTuple):
    """One record that is planned first and appended later (decision D3).

    Attributes:
        summary: what a report says of the step.
        event: empty for a step that only reports something.
        to: the agent whose log gets the record; None for the agent that the steps belong to.
        is_warning: show `summary` to the user at once: an agent could not be notified.
        resends: the id of a `message.unsent` that this step settles.
    """

    summary: str
    event: str = ""
    data: dict[str, Any] | None = None
    to: AgentPaths | None = None
    is_warning: bool = False
    resends: str = ""


def unsent_step(agent_id: str, message: dict[str, Any], whom: str) -> Step:
    """Return the step that records a message which another agent's log did not take.

    Args:
        message: the data of the `message.enqueued` that belongs into that log.
        whom: the role of the other agent, for the report.
    """
    summary = f"{whom} {agent_id} cannot be told now; `agentsdir restore {agent_id}` does it later"
    return Step(summary, "message.unsent", {"to": agent_id, "message": message}, is_warning=True)


def apply_step(services: Services, paths: AgentPaths, state: AgentState, step: Step) -> AgentState:
    """Append the record of a step under the lock of its agent; return this agent's new state.

    Nothing is appended if the record is there already, or if the agent was closed since. A message
    that another agent's log does not take is recorded as `message.unsent`.
    """
    if step.is_warning:
        services.notify_user(step.summary)
    if step.to is not None:
        if not _apply_to_other(services, step.to, step):
            return _log_unsent(services, paths, state, step)
    elif step.event:
        state = _apply_here(services, paths, state, step)
    if step.resends:
        state = _apply_here(services, paths, state, resent_step(step.resends, "delivered"))
    return state


def resent_step(message_id: str, outcome: str, to: AgentPaths | None = None) -> Step:
    """Return the step that settles a `message.unsent`."""
    data = {"message_id": message_id, "outcome": outcome}
    return Step(f"settled what could not be told: {outcome}", "message.resent", data, to)


def apply_steps(
    services: Services,
    paths: AgentPaths,
    state: AgentState,
    steps: Iterable[Step],
    done: list[str] | None = None,
) -> AgentState:
    """Apply steps in order, as `apply_step` does; return this agent's new state.

    Args:
        done: gets the summary of each step once it is applied.
    """
    done = [] if done is None else done
    for is_own, group in groupby(steps, key=_is_own):
        # One hold for many records of this agent, but no endless one: others wait for its lock.
        while some := list(islice(group, _AT_ONCE if is_own else 1)):
            if not is_own:
                state = apply_step(services, paths, state, some[0])
                done.append(some[0].summary)
                continue
            with write_agent(paths, disk=services.disk, known=state) as writer:
                for step in some:
                    _append_once(services, writer, step)
                    done.append(step.summary)
                state = writer.state
    return state


def _is_own(step: Step) -> bool:
    """Return whether a step is nothing but a record of the agent that the steps belong to."""
    return bool(step.event) and step.to is None and not (step.is_warning or step.resends)


def _apply_here(services: Services, paths: AgentPaths, state: AgentState, step: Step) -> AgentState:
    with write_agent(paths, disk=services.disk, known=state) as writer:
        _append_once(services, writer, step)
        return writer.state


def _log_unsent(services: Services, paths: AgentPaths, state: AgentState, step: Step) -> AgentState:
    """Record a message that another agent's log did not take in the log of its sender."""
    data = step.data or {}
    if step.event != "message.enqueued" or step.to is None or step.resends:
        return state  # `restore` derives the other steps from the logs
    unsent = unsent_step(step.to.id, data, "agent")
    own = data["sender"] == state.agent_id
    return apply_step(
        services,
        paths,
        state,
        unsent._replace(to=None if own else services.layout.agent(data["sender"])),
    )


def _apply_to_other(services: Services, paths: AgentPaths, step: Step) -> bool:
    """Append a record to another agent's log, after records of what that log has lost.

    Returns whether the log could be written.
    """
    try:
        with write_agent(paths, disk=services.disk) as writer:
            _append_once(services, writer, step)
    except Invalid as error:
        if error.kind not in ("log-shorter", "creation-lost"):
            services.notify_user(f"agent {paths.id} was not told: {error.message}")
            return False
        with write_agent(paths, disk=services.disk, whole=True) as writer:
            for loss in loss_steps(writer.reading):
                writer.append(loss.event, loss.data or {}, services.now())
            _append_once(services, writer, step)
    except (Busy, NoSuchAgent) as error:
        services.notify_user(f"agent {paths.id} was not told: {error.message}")
        return False
    return True


def _append_once(services: Services, writer: AgentWriter, step: Step) -> None:
    data = step.data or {}
    if not (_is_logged(writer.state, step.event, data) or _is_known_of_child(writer, data)):
        with suppress(SessionStateError):
            writer.append(step.event, data, services.now())


def _is_logged(state: AgentState, event: str, data: dict[str, Any]) -> bool:
    """Return whether the state shows that a record is there already."""
    if event == "message.unsent":
        return data["message"]["message_id"] in state.unsent
    message_id = data.get("message_id")
    if event == "message.resent":
        return message_id not in state.unsent
    waits = isinstance(message_id, str) and state.pending.has(message_id)
    if event == "message.delivered":
        turn = state.open_turn
        return not waits and message_id not in (turn["messageIds"] if turn else ())
    return event == "message.enqueued" and waits


def _is_known_of_child(writer: AgentWriter, data: dict[str, Any]) -> bool:
    """Return whether a parent has the end of a subagent by now, for a record about it.

    Two processes or threads may have closed the subagent, or one closed it when its turn ended.
    """
    child = data.get("child") or (data.get("block") or {}).get("subagentId")
    if not isinstance(child, str) or child in writer.state.children:
        return False
    return _has_child_end(writer.paths, child)


def loss_steps(reading: Reading) -> list[Step]:
    """Return the records of what only other files show: a lost end or a lost first record."""
    steps = []
    if reading.rebuilt is not None:
        steps.append(Step("rebuilt the first record", "restore", _creation(reading.rebuilt)))
    lost = [finding for finding in reading.findings if finding.id == "log-shorter"]
    steps += [Step("recorded the loss", "restore", {"notice": one.message}) for one in lost]
    return steps


def _creation(record: Record) -> dict[str, Any]:
    notice = "the first record cannot be read; this one was made of descriptor.json"
    return {"notice": notice, "created": {"created_at": record.ts, "data": record.data}}


# Notices. A turn makes them at its end, and recovery after a crash. Their ids are derived from the
# turn or the message, so that the second attempt finds the records of the first.


def failure_text(state: AgentState, reason: str) -> str:
    """Return the text of a notice about an agent that failed."""
    what = "Subagent" if state.descriptor.get("type") == "subagent" else "Agent"
    name = state.name or state.descriptor.get("name") or state.descriptor.get("type")
    return f"{what} {name} ({state.agent_id}) failed: {reason}."


def completion_steps(
    layout: Layout,
    state: AgentState,
    turn_id: str,
    message: dict[str, Any] | None,
    ending: Ending,
    *,
    again: bool = False,
    reports: bool = True,
) -> list[Step]:
    """Return the steps after a turn's end and before its `message.delivered`, in order.

    Args:
        message: the turn's message as it stood in the inbox; None for a turn without one.
        again: a process that died may have applied some of the steps.
        reports: whether the parent gets a notice of a subagent's failure.
    """
    steps = _outgoing(state, turn_id, message, ending)
    steps += _dropped(layout, state, ending)
    notices = _NoticeBuilder(layout, again=again)
    if message is not None and message.get("spawn"):
        output = ending.text if ending.is_success else failure_text(state, ending.failure_reason)
        why = "" if ending.is_success else ending.failure_reason
        steps += child_ended_steps(layout, state, message["content"], output, failure=why)
    notified = ""
    if reports and state.descriptor.get("type") == "subagent" and _is_notable(ending):
        notified = state.parent or ""
        steps += notices.for_parent(state, turn_id, message, ending)
    if message is not None and message.get("sync") and message["sender"] != notified:
        steps += notices.for_sender(state, message, ending)
    return steps


def queued_by(steps: list[Step]) -> list[QueuedMessage]:
    """Return the messages that steps put into the inboxes of other agents."""
    return [
        QueuedMessage(step.to, step.data["message_id"])
        for step in steps
        if step.to is not None and step.event == "message.enqueued" and step.data
    ]


def _is_notable(ending: Ending) -> bool:
    # No notice if the agent was closed together with its parent.
    return not ending.is_success and ending.aborted != "parent"


def _outgoing(
    state: AgentState, turn_id: str, message: dict[str, Any] | None, ending: Ending
) -> list[Step]:
    """Return the outgoing text for the user behind a connector: the answer, or a failure.

    A terminal has no connector: a text for it would wait for ever.
    """
    descriptor = state.descriptor
    text = ending.text_for_user
    at_terminal = descriptor.get("connector") == TERMINAL
    if descriptor.get("type") != "user" or at_terminal or not text:
        return []
    if state.session.state is SessionState.TERMINATED:
        return []  # a closed agent sends nothing
    outgoing = derived_id(turn_id, "outgoing")
    data = {
        "message_id": outgoing,
        **{name: descriptor.get(name) for name in ("connector", "userId", "channelId")},
        "text": text,
        "in_reply_to": message["messageId"] if message else None,
    }
    return [Step(f"answered: {text}", "outgoing", data)]


def _dropped(layout: Layout, state: AgentState, ending: Ending) -> list[Step]:
    """Return the steps that drop the children of a turn that was not completed (D19)."""
    turn = state.open_turn
    if ending.is_success or turn is None:
        return []

    steps: list[Step] = []
    for child_id, name in [
        (one["child"], one["name"]) for one in turn["deferred"] if "child" in one
    ]:
        if state.children.get(child_id, {}).get("status") != "pending":
            continue  # it was run by hand, or dropped before
        why = "the turn that asked for it was not completed"
        one = Subagent(child_id, name)
        found = find_child(layout, state, child_id)
        if found is not None:
            prompt = next((m["content"] for m in found[1].pending if m.get("spawn")), ())
            one = Subagent.of(found[1], prompt)
            steps += _close_unstarted(layout, *found)
        block = {"turn_id": turn["turnId"], "block": one.block(state, "error", f"Dropped: {why}.")}
        steps.append(Step(f"showed that subagent {name} is not run", "block", block))
        dropped = {"child": child_id, "name": name, "reason": why}
        steps.append(Step(f"dropped subagent {name}", "spawn.dropped", dropped))
    return steps


def _close_unstarted(layout: Layout, paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return the steps that close a child which is not run, and abort its messages."""
    current = state.session.state
    end = {"from": current.value, "to": "terminated", "reason": "close"}
    closing = Step(f"closed {paths.id}", "session.state", end, paths)
    is_closed = current is SessionState.TERMINATED
    return [*([] if is_closed else [closing]), *abort_pending_steps(layout, state, dropped=paths)]


def abort_pending_steps(
    layout: Layout, state: AgentState, *, dropped: AgentPaths | None = None
) -> list[Step]:
    """Return the steps that abort the messages of a closed agent and notify their senders.

    Args:
        dropped: the agent, if the steps are its parent's, which drops it. The parent then gets no
            notice about its own task.
    """
    notices, ending = _NoticeBuilder(layout, again=True), Ending(aborted="close")
    steps: list[Step] = []
    for message in state.pending:
        is_dropped = dropped is not None and message.get("spawn")
        if message.get("spawn") and not is_dropped:
            output = failure_text(state, ending.failure_reason)
            steps += child_ended_steps(
                layout, state, message["content"], output, failure=ending.failure_reason
            )
        if message.get("sync") and not is_dropped:
            replies = notices.for_sender(state, message, ending)
            steps += [
                one if one.to or not one.event else one._replace(to=dropped) for one in replies
            ]
        settled = {"message_id": message["messageId"], "outcome": "aborted"}
        summary = f"settled message {message['messageId']}: aborted"
        steps.append(Step(summary, "message.delivered", settled, dropped))
    return steps


def _has_parent_cycle(layout: Layout, state: AgentState) -> bool:
    if state.parent == state.agent_id:
        return False  # an agent does not notify itself

    try:
        ancestors(layout, state)
    except AgentsdirError as error:
        return error.kind == "parent-cycle"
    return False


class _NoticeBuilder:
    """Builds the steps that notify other agents."""

    def __init__(self, layout: Layout, *, again: bool) -> None:
        self._layout = layout
        self._again = again

    def for_parent(
        self, state: AgentState, turn_id: str, message: dict[str, Any] | None, ending: Ending
    ) -> list[Step]:
        """Return the notice of a failure for the parent; none if the parents form a cycle."""
        if _has_parent_cycle(self._layout, state):
            # Each failure would cause the next one.
            summary = f"its parents go round, and {state.parent} was not told"
            return [Step(summary, is_warning=True)]
        answers = message is not None and message["sender"] == state.parent
        reply_to = message["messageId"] if message is not None and answers else ""
        notice = Message(
            text_message(failure_text(state, ending.failure_reason)),
            state.agent_id,
            notice=True,
            id=derived_id(turn_id, "parent"),
            reply_to=reply_to,
        )
        return self._notice(state.parent or "", "its parent", state.agent_id, notice)

    def for_sender(self, state: AgentState, message: dict[str, Any], ending: Ending) -> list[Step]:
        """Return the reply for the sender of a message that waits for it."""
        failed = not ending.is_success
        if ending.aborted == "parent" and message.get("spawn"):
            return []  # the parent was interrupted as well
        reply = Message(
            text_message(failure_text(state, ending.failure_reason) if failed else ending.text),
            state.agent_id,
            notice=failed,
            # Messages to two agents may have the same id.
            id=derived_id(f"{state.agent_id}:{message['messageId']}", "reply"),
            reply_to=message["messageId"],
        )
        return self._notice(message["sender"], "the sender", state.agent_id, reply)

    def _notice(self, agent_id: str, whom: str, own_id: str, message: Message) -> list[Step]:
        found = find_readable(self._layout, agent_id) if agent_id != own_id else None
        if found is None and agent_id != own_id and self._layout.is_taken(agent_id):
            # Archived or damaged. `restore` resends the message afterwards.
            return [unsent_step(agent_id, message.as_data(message.id), whom)]
        if found is None or found[1].session.state is SessionState.TERMINATED:
            summary = f"{whom} {agent_id or '(none)'} is gone, and was not told"
            return [Step(summary, is_warning=True)]
        paths = found[0]
        if self._again and find_message(paths, message.id) is not None:
            return [Step(f"{whom} {paths.id} was told before")]
        return [
            Step(f"told {whom} {paths.id}", "message.enqueued", message.as_data(message.id), paths)
        ]


# A subagent in its parent's log: a block that goes pending → running → success or error under one
# id, and `agent.spawned` events. Both are derived from the subagent alone, so the steps can be
# repeated. A parent that is removed, closed or unreadable gets none.


class Subagent(NamedTuple):
    """A subagent as its block shows it; `created_at` is None if it is not known."""

    id: str
    name: str
    created_at: str | None = None
    content: Content = ()

    @classmethod
    def of(cls, child: AgentState, content: Content) -> Subagent:
        """Return an agent with its first prompt."""
        name = child.name or str(child.descriptor.get("name"))
        return cls(child.agent_id, name, child.session.created_at, content)

    def block(self, parent: AgentState, status: str, output: str | None = None) -> Block:
        """Return the block in the parent's conversation.

        Args:
            output: the answer, or why there is none.
        """
        block = make_block(
            "subagent",
            SPAWNED + self.id,
            MAIN,
            parent.native["id"],
            self.created_at,
            None,
            subagentId=self.id,
            name=self.name,
            input="\n".join(_text_of(part) for part in self.content),
            status=status,
        )
        return block if output is None else {**block, "output": output}


def _text_of(part: dict[str, Any]) -> str:
    return str(part.get("text") or f"[{part.get('type')}]")


def find_child(
    layout: Layout, parent: AgentState, child_id: str
) -> tuple[AgentPaths, AgentState] | None:
    """Return a subagent that its parent's log names; None if it is removed, or not its own.

    A log from a bundle may name any agent. The descriptor of the child has its real parent.
    """
    found = find_readable(layout, child_id)
    return found if found is not None and found[1].parent == parent.agent_id else None


def pending_children(layout: Layout, parent: AgentState) -> list[tuple[AgentPaths, str]]:
    """Return the subagents whose first turn has not started, each with its prompt's id.

    In the order in which they were requested, without those that `find_child` does not return.
    """
    found = []
    for child_id in parent.children:
        if (child := find_child(layout, parent, child_id)) is not None:
            prompts = [m["messageId"] for m in child[1].pending if m.get("spawn")]
            found += [(child[0], prompt) for prompt in prompts[:1]]
    return found


def is_spawned_block(block: dict[str, Any]) -> bool:
    """Return whether a block is of a spawned agent: it does not end with the turn that asked."""
    return str(block.get("id")).startswith(SPAWNED)


def subagent_blocks(paths: AgentPaths, children: Collection[str]) -> dict[str, Block]:
    """Return the last block of each subagent in its parent's log, by agent id."""
    found: dict[str, Block] = {}
    wanted = {SPAWNED + child: child for child in children}
    for record in read_records(paths.log) if wanted else ():
        block = record.data.get("block")
        if isinstance(block, dict) and (child := wanted.get(str(block.get("id")))) is not None:
            found[child] = block
    return found


def child_started_steps(layout: Layout, child: AgentState, content: Content) -> list[Step]:
    """Return the steps that log in the parent that the first turn begins, if they are missing.

    Args:
        content: the subagent's first prompt.
    """
    parent = _parent_to_notify(layout, child)
    if parent is None:
        return []
    paths, state = parent
    one = Subagent.of(child, content)
    steps = [_block_step(paths, one.block(state, "running"))]
    if state.children.get(one.id, {}).get("status") != "running":
        data = {"child": one.id, "name": one.name, "status": "running"}
        steps.append(Step(f"subagent {one.id} runs", "agent.spawned", data, paths))
    return steps


def child_ended_steps(
    layout: Layout, child: AgentState, content: Content, output: str, *, failure: str = ""
) -> list[Step]:
    """Return the steps that log in the parent how the first turn ended, if they are missing.

    Args:
        content: the subagent's first prompt.
        output: its answer, or the text about its failure.
        failure: the reason of a failure; empty for none.
    """
    parent = _parent_to_notify(layout, child)
    if parent is None:
        return []
    paths, state = parent
    one = Subagent.of(child, content)
    status = "error" if failure else "success"
    data = {"child": one.id, "name": one.name, "status": status}
    if failure:
        data["detail"] = failure
    return [
        # The event comes last: it marks the steps as done.
        _block_step(paths, one.block(state, status, output)),
        Step(f"its parent {paths.id} knows how it ended", "agent.spawned", data, paths),
    ]


def _block_step(paths: AgentPaths, block: Block) -> Step:
    summary = f"marked subagent {block['subagentId']} there: {block['status']}"
    # The turn of the parent that requested the subagent is over.
    return Step(summary, "block", {"turn_id": None, "block": block}, paths)


def _parent_to_notify(layout: Layout, child: AgentState) -> tuple[AgentPaths, AgentState] | None:
    """Return the parent, unless its log cannot be written or has the end already."""
    if child.parent is None or child.parent == child.agent_id:
        return None
    found = find_readable(layout, child.parent)
    if found is None:
        return None
    paths, state = found
    if state.session.state is SessionState.TERMINATED:
        return None
    knows = child.agent_id not in state.children and _has_child_end(paths, child.agent_id)
    return None if knows else found


def _has_child_end(paths: AgentPaths, child_id: str) -> bool:
    """Return whether a log has the end of a subagent; it may lack the beginning."""
    return any(
        record.event == "spawn.dropped"
        or (record.event == "agent.spawned" and record.data.get("status") != "running")
        for record in read_records(paths.log)
        if record.data.get("child") == child_id
    )
