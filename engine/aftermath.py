"""Who is told how a turn ended.

See decisions D18, D19, D25 and D28; docs/behaviour.md, "After a turn".

Used by the turn itself, and by whoever finds it open: every record has an id that follows from the
turn or the message, so that what was done once can be left out the second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.engine.agents import find_readable
from agentsdir.engine.endings import TERMINAL, Ending, Told
from agentsdir.engine.inbox import Message, find_message, text_message
from agentsdir.engine.steps import Step, unsent_step
from agentsdir.formats.digest import derived_id
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import AgentsdirError

if TYPE_CHECKING:
    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState


def failure_text(state: AgentState, reason: str) -> str:
    """Return what is said of a failure to whoever waits for an agent."""
    what = "Subagent" if state.descriptor.get("type") == "subagent" else "Agent"
    name = state.name or state.descriptor.get("name") or state.descriptor.get("type")
    return f"{what} {name} ({state.agent_id}) failed: {reason}."


def aftermath(
    layout: Layout,
    state: AgentState,
    turn_id: str,
    message: dict[str, Any] | None,
    ending: Ending,
    *,
    again: bool = False,
) -> list[Step]:
    """Return the records that tell of a turn's end, in order; they come before its delivery.

    Args:
        message: what the turn was about, as the inbox had it; None for a turn without one.
        again: some of it may have been done already, by somebody who died.
    """
    steps = _outgoing(state, turn_id, message, ending)
    steps += _dropped(layout, state, ending)
    telling = _Telling(layout, again=again)
    if message is not None and message.get("spawn"):
        from agentsdir.engine.spawning.telling import ended_steps

        said = ending.text if ending.is_success else failure_text(state, ending.reason)
        why = "" if ending.is_success else ending.reason
        steps += ended_steps(layout, state, message["content"], said, failure=why)
    notified = ""
    if state.descriptor.get("type") == "subagent" and _is_notable(ending):
        notified = state.parent or ""
        steps += telling.parent(state, turn_id, message, ending)
    if message is not None and message.get("sync") and message["sender"] != notified:
        steps += telling.sender(state, message, ending)
    return steps


def told_by(steps: list[Step]) -> list[Told]:
    """Return the messages that some steps put into other agents' inboxes."""
    return [
        Told(step.to, step.data["message_id"])
        for step in steps
        if step.to is not None and step.event == "message.enqueued" and step.data
    ]


def _is_notable(ending: Ending) -> bool:
    # Where an agent was closed together with its parent, that one is not told either: it is closed.
    return not ending.is_success and ending.aborted != "parent"


def _outgoing(
    state: AgentState, turn_id: str, message: dict[str, Any] | None, ending: Ending
) -> list[Step]:
    """A person at the other end of a connector gets the answer, or that there is none.

    An agent at a terminal has no connector: what it would be told would wait for ever.
    """
    descriptor = state.descriptor
    text = ending.says
    at_terminal = descriptor.get("connector") == TERMINAL
    if descriptor.get("type") != "user" or at_terminal or not text:
        return []
    if state.session.state is SessionState.TERMINATED:
        return []  # nobody speaks for it any more
    outgoing = derived_id(turn_id, "outgoing")
    data = {
        "message_id": outgoing,
        **{name: descriptor.get(name) for name in ("connector", "userId", "channelId")},
        "text": text,
        "in_reply_to": message["messageId"] if message else None,
    }
    return [Step(f"answered: {text}", "outgoing", data)]


def _dropped(layout: Layout, state: AgentState, ending: Ending) -> list[Step]:
    """A turn that was not completed starts nothing: its children end before they began (D19)."""
    turn = state.open_turn
    if ending.is_success or turn is None:
        return []
    from agentsdir.engine.spawning.telling import Subagent, find_child

    steps: list[Step] = []
    for child_id, name in [
        (one["child"], one["name"]) for one in turn["deferred"] if "child" in one
    ]:
        if state.children.get(child_id, {}).get("status") != "pending":
            continue  # somebody has run it by hand, or it was dropped before
        why = "the turn that asked for it was not completed"
        one = Subagent(child_id, name)
        found = find_child(layout, state, child_id)
        if found is not None:
            prompt = next((m["content"] for m in found[1].pending if m.get("spawn")), ())
            one = Subagent.of(found[1], prompt)
            steps += _end_unborn(layout, *found)
        block = {"turn_id": turn["turnId"], "block": one.block(state, "error", f"Dropped: {why}.")}
        steps.append(Step(f"showed that subagent {name} is not run", "block", block))
        dropped = {"child": child_id, "name": name, "reason": why}
        steps.append(Step(f"dropped subagent {name}", "spawn.dropped", dropped))
    return steps


def _end_unborn(layout: Layout, paths: AgentPaths, state: AgentState) -> list[Step]:
    """Close a child that will not be run, its messages with it; or go on with that."""
    current = state.session.state
    end = {"from": current.value, "to": "terminated", "reason": "close"}
    closing = Step(f"closed {paths.id}", "session.state", end, paths)
    is_closed = current is SessionState.TERMINATED
    return [*([] if is_closed else [closing]), *give_up_steps(layout, state, dropped=paths)]


def give_up_steps(
    layout: Layout, state: AgentState, *, dropped: AgentPaths | None = None
) -> list[Step]:
    """Return what ends the messages that wait for a closed agent, and tells who waits for it.

    Args:
        dropped: where the agent is, when the steps are its parent's, which drops it: that one
            needs no other word of the task that it gave.
    """
    telling, ending = _Telling(layout, again=True), Ending(aborted="close")
    steps: list[Step] = []
    for message in state.pending:
        is_dropped = dropped is not None and message.get("spawn")
        if message.get("spawn") and not is_dropped:
            from agentsdir.engine.spawning.telling import ended_steps

            said = failure_text(state, ending.reason)
            steps += ended_steps(layout, state, message["content"], said, failure=ending.reason)
        if message.get("sync") and not is_dropped:
            told = telling.sender(state, message, ending)
            steps += [one if one.to or not one.event else one._replace(to=dropped) for one in told]
        settled = {"message_id": message["messageId"], "outcome": "aborted"}
        says = f"settled message {message['messageId']}: aborted"
        steps.append(Step(says, "message.delivered", settled, dropped))
    return steps


def _goes_round(layout: Layout, state: AgentState) -> bool:
    if state.parent == state.agent_id:
        return False  # nobody is told by themselves
    from agentsdir.engine.routing.lineage import ancestors

    try:
        ancestors(layout, state)
    except AgentsdirError as error:
        return error.kind == "parent-cycle"
    return False


class _Telling:
    """Puts together what other agents' logs are told."""

    def __init__(self, layout: Layout, *, again: bool) -> None:
        self._layout = layout
        self._again = again

    def parent(
        self, state: AgentState, turn_id: str, message: dict[str, Any] | None, ending: Ending
    ) -> list[Step]:
        """Tell the parent that its subagent failed, once; nobody where the parents go round."""
        if _goes_round(self._layout, state):
            # Each failure would cause the next one, for ever.
            says = f"its parents go round, and {state.parent} was not told"
            return [Step(says, is_failure=True)]
        answers = message is not None and message["sender"] == state.parent
        reply_to = message["messageId"] if message is not None and answers else ""
        notice = Message(
            text_message(failure_text(state, ending.reason)),
            state.agent_id,
            notice=True,
            id=derived_id(turn_id, "parent"),
            reply_to=reply_to,
        )
        return self._tell(state.parent or "", "its parent", state.agent_id, notice)

    def sender(self, state: AgentState, message: dict[str, Any], ending: Ending) -> list[Step]:
        """Give the sender of a message the answer that it waits for."""
        failed = not ending.is_success
        if ending.aborted == "parent" and message.get("spawn"):
            return []  # it was ended together with the one who waits
        reply = Message(
            text_message(failure_text(state, ending.reason) if failed else ending.text),
            state.agent_id,
            notice=failed,
            # Two agents may have been sent messages of one id.
            id=derived_id(f"{state.agent_id}:{message['messageId']}", "reply"),
            reply_to=message["messageId"],
        )
        return self._tell(message["sender"], "the sender", state.agent_id, reply)

    def _tell(self, agent_id: str, whom: str, teller: str, message: Message) -> list[Step]:
        found = find_readable(self._layout, agent_id) if agent_id != teller else None
        if found is None and agent_id != teller and self._layout.is_taken(agent_id):
            # Archived or damaged: once it is neither, `restore` tells it.
            return [unsent_step(agent_id, message.as_data(message.id), whom)]
        if found is None or found[1].session.state is SessionState.TERMINATED:
            says = f"{whom} {agent_id or '(none)'} is gone, and was not told"
            return [Step(says, is_failure=True)]
        paths = found[0]
        if self._again and find_message(paths, message.id) is not None:
            return [Step(f"{whom} {paths.id} was told before")]
        return [
            Step(f"told {whom} {paths.id}", "message.enqueued", message.as_data(message.id), paths)
        ]
