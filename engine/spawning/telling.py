"""What a parent's log says of a subagent: its block, and that it began or ended.

The block goes pending → running → success or error under one id. All of it follows from the
subagent alone, so that it can be planned, done half and done again. A parent that is gone, closed
or unreadable is told nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.agents import find_readable
from agentsdir.engine.steps import Step
from agentsdir.formats.directory.log import read_records
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.reading.blocks import MAIN, make_block

SPAWNED = "spawn:"
"""What the id of the block begins with; the rest is the subagent's."""

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.blocks import Block

    Content = Sequence[dict[str, Any]]


class Subagent(NamedTuple):
    """A subagent as its block has it; `created_at` is None where nobody knows."""

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
    """Return a subagent that its parent's log names; None for one that is gone, or not its own.

    A log may have come with a bundle, and name any agent. The child's descriptor says whose it is.
    """
    found = find_readable(layout, child_id)
    return found if found is not None and found[1].parent == parent.agent_id else None


def waiting_children(layout: Layout, parent: AgentState) -> list[tuple[AgentPaths, str]]:
    """Return the subagents that nobody has begun to run, each with its first prompt's id.

    They stand in the order of the asking; who is gone, cannot be read, or is another's is left out.
    """
    found = []
    for child_id in parent.children:
        if (child := find_child(layout, parent, child_id)) is not None:
            prompts = [m["messageId"] for m in child[1].pending if m.get("spawn")]
            found += [(child[0], prompt) for prompt in prompts[:1]]
    return found


def is_spawned(block: dict[str, Any]) -> bool:
    """Tell whether a block stands for an agent of ours: it ends by itself, whatever turn asked."""
    return str(block.get("id")).startswith(SPAWNED)


def shown(paths: AgentPaths, children: Collection[str]) -> dict[str, Block]:
    """Return the block of each of some subagents as their parent's log has it last."""
    found: dict[str, Block] = {}
    wanted = {SPAWNED + child: child for child in children}
    for record in read_records(paths.log) if wanted else ():
        block = record.data.get("block")
        if isinstance(block, dict) and (child := wanted.get(str(block.get("id")))) is not None:
            found[child] = block
    return found


def begun_steps(layout: Layout, child: AgentState, content: Content) -> list[Step]:
    """Return what tells the parent that the first turn begins; nothing if it knows.

    Args:
        content: the subagent's first prompt.
    """
    parent = _asking_parent(layout, child)
    if parent is None:
        return []
    paths, state = parent
    one = Subagent.of(child, content)
    steps = [_block_step(paths, one.block(state, "running"))]
    if state.children.get(one.id, {}).get("status") != "running":
        said = {"child": one.id, "name": one.name, "status": "running"}
        steps.append(Step(f"subagent {one.id} runs", "agent.spawned", said, paths))
    return steps


def ended_steps(
    layout: Layout, child: AgentState, content: Content, output: str, *, failure: str = ""
) -> list[Step]:
    """Return what tells the parent how the first prompt ended; nothing if it knows.

    Args:
        content: the subagent's first prompt.
        output: its answer, or what is said of its failure.
        failure: why it failed; empty where it did not.
    """
    parent = _asking_parent(layout, child)
    if parent is None:
        return []
    paths, state = parent
    one = Subagent.of(child, content)
    status = "error" if failure else "success"
    said = {"child": one.id, "name": one.name, "status": status}
    if failure:
        said["detail"] = failure
    return [
        # The event comes last: it is what says that the parent knows.
        _block_step(paths, one.block(state, status, output)),
        Step(f"its parent {paths.id} knows how it ended", "agent.spawned", said, paths),
    ]


def _block_step(paths: AgentPaths, block: Block) -> Step:
    says = f"marked subagent {block['subagentId']} there: {block['status']}"
    # No turn of the parent's made this: the one that asked is over.
    return Step(says, "block", {"turn_id": None, "block": block}, paths)


def _asking_parent(layout: Layout, child: AgentState) -> tuple[AgentPaths, AgentState] | None:
    """Return the parent if it can be told, and does not know yet how the subagent ended."""
    if child.parent is None or child.parent == child.agent_id:
        return None
    found = find_readable(layout, child.parent)
    if found is None:
        return None
    paths, state = found
    if state.session.state is SessionState.TERMINATED:
        return None
    knows = child.agent_id not in state.children and _knows(paths, child.agent_id)
    return None if knows else found


def _knows(paths: AgentPaths, child_id: str) -> bool:
    """Tell whether a log says how a subagent ended; it need not say that it began."""
    return any(
        record.event == "spawn.dropped"
        or (record.event == "agent.spawned" and record.data.get("status") != "running")
        for record in read_records(paths.log)
        if record.data.get("child") == child_id
    )
