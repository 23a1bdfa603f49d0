"""What the stream of a turn still knows when its process died (decision D20).

A client loses the message that it was writing, and its transcript never has it. The stream, which
is kept while a turn runs, has what was said so far.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.engine.recording import decode_event
from agentsdir.formats.directory.layout import open_plain
from agentsdir.formats.directory.transcripts import store_path
from agentsdir.formats.errors import Invalid, NotRecorded
from agentsdir.formats.reading.blocks import block_key, check_block
from agentsdir.formats.reading.lines import read_lines
from agentsdir.formats.reading.reducer import Reducer

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.blocks import Block

_SAID = ("assistant_text", "thinking")


class LostStream(NamedTuple):
    """A stream that no event names: the blocks that the log lacks, and whether that is all."""

    path: Path
    blocks: list[Block]
    is_spent: bool
    """Whether the log has all of the stream, once it has these blocks."""


def lost_streams(
    paths: AgentPaths, state: AgentState, logged: AbstractSet[tuple[str, str]]
) -> list[LostStream]:
    """Return the streams that the turn left whose process died. Writes nothing.

    Args:
        state: of the agent, whose open turn it is.
        logged: the keys of the blocks that the log has of that turn.
    """
    found = []
    stem, number = f"{state.native['id']}/turn-{state.counters['turns']}", 1
    native = f"{stem}.stream"
    with suppress(Invalid):  # a native id that is no name has no folder
        while os.path.lexists(path := store_path(paths, native)):
            if native not in state.transcripts and (stream := _read(path, logged)):
                found.append(stream)
            number += 1
            native = f"{stem}-{number}.stream"
    return found


def _read(path: Path, logged: AbstractSet[tuple[str, str]]) -> LostStream | None:
    reducer = Reducer()
    try:
        with os.fdopen(open_plain(path), "rb") as opened:
            for line in read_lines(opened):
                event = decode_event(line.data)
                if event is not None:  # the last line may be torn
                    with suppress(Invalid, KeyError, TypeError, AttributeError):
                        reducer.apply(event)
    except (Invalid, NotRecorded, OSError):
        return None
    blocks = [block for thread in reducer.conversations.values() for block in thread]
    lacking = [block for block in blocks if block_key(block) not in logged]
    lost = [block for block in lacking if _was_said(block) and _is_whole(block)]
    return LostStream(path, lost, bool(blocks) and len(lost) == len(lacking))


def _was_said(block: Block) -> bool:
    """Tell whether there is more to a block than its beginning.

    A call that runs was made; one that is pending may be one whose input still came.
    """
    if block.get("type") == "tool_use":
        return block.get("status") == "running"
    return block.get("type") in _SAID and bool(block.get("content"))


def _is_whole(block: Block) -> bool:
    try:
        check_block(block)
    except Invalid:
        return False
    return True
