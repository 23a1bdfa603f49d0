"""What a parent's log lacks of its subagents, because it could not be told at the time.

It was archived when one ended, or could not be written to; or one was removed before it ended.
`restore` of either catches up with it (docs/behaviour.md, "Spawning").
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agentsdir.engine.aftermath import aftermath
from agentsdir.engine.agents import find_readable
from agentsdir.engine.endings import Ending
from agentsdir.engine.spawning.telling import Subagent, find_child
from agentsdir.engine.steps import Step
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.directory.fold import BROKEN, waiting_message
from agentsdir.formats.directory.log import read_records
from agentsdir.formats.directory.states import SessionState

if TYPE_CHECKING:
    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState

GONE = "it was removed before it ended"


def missed_steps(layout: Layout, paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return what brings a parent's log level with its subagents; nothing for a closed parent."""
    steps: list[Step] = []
    gone = [child_id for child_id in state.children if not layout.is_taken(child_id)]
    if gone:
        # Its end may have been told, and it removed, since the state was read.
        state = read_agent(paths).state
    for child_id, known in state.children.items():
        if state.session.state is SessionState.TERMINATED or child_id not in gone:
            continue
        one = Subagent(child_id, known["name"])
        block = {"turn_id": None, "block": one.block(state, "error", f"Removed: {GONE}.")}
        steps.append(Step(f"marked subagent {child_id}: {GONE}", "block", block))
        said = {"child": child_id, "name": one.name, "status": "error", "detail": GONE}
        steps.append(Step(f"said that subagent {child_id} is gone", "agent.spawned", said))
    for child_id in state.children:
        child = find_child(layout, state, child_id)
        if child is not None and state.session.state is not SessionState.TERMINATED:
            untold = _untold(layout, paths, *child)
            steps += [step._replace(to=None) for step in untold]
    return steps


def untold_steps(layout: Layout, paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return what tells a subagent's parent how its first prompt ended, if it lacks that."""
    found = find_readable(layout, state.parent) if state.parent else None
    if found is None or paths.id not in found[1].children or state.parent == paths.id:
        return []
    closed = found[1].session.state is SessionState.TERMINATED
    return [] if closed else _untold(layout, found[0], paths, state)


def _untold(layout: Layout, parent: AgentPaths, paths: AgentPaths, child: AgentState) -> list[Step]:
    """Return what the parent was to be told when the subagent's first prompt ended, if it has."""
    prompt = None
    turn_id, ending, is_over = "", Ending(aborted="close"), False
    for record in read_records(paths.log):
        data = record.data
        if record.event == "message.enqueued" and data.get("spawn") is True and prompt is None:
            with suppress(*BROKEN):
                prompt = waiting_message(data, record.ts)
        elif prompt is None:
            continue
        elif record.event == "turn.start" and prompt["messageId"] in data.get("message_ids", ()):
            turn_id = str(data.get("turn_id"))
        elif record.event == "message.delivered" and data.get("message_id") == prompt["messageId"]:
            is_over = True  # until then whoever runs it may still tell the parent
        elif turn_id and data.get("turn_id") == turn_id and not is_over:
            ending = Ending.of_record(record.event, data) or ending
    if not is_over:
        return []
    steps = aftermath(layout, child, turn_id or child.agent_id, prompt, ending, again=True)
    return [step for step in steps if step.to and step.to.id == parent.id]
