"""What a session's transcripts show beside what its log has (decisions D7 and D20)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.adapters import registry
from agentsdir.formats import jsontext
from agentsdir.formats.digest import short_hash
from agentsdir.formats.directory.log import read_records
from agentsdir.formats.errors import Invalid
from agentsdir.formats.reading.blocks import block_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agentsdir.adapters.contract import Architecture
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.source import Source

# What makes two versions of a block different; their time, place and tokens do not (D21).
_COMPARED = (
    "type",
    "content",
    "summary",
    "toolName",
    "toolUseId",
    "input",
    "output",
    "status",
    "isError",
    "subagentId",
    "link",
    "durationMs",
    "name",
    "subtype",
    "message",
    "superseded",
)


class Logged:
    """The blocks that the log has: of one turn while it runs, or of all of them.

    It holds a digest of each, and whole only the calls which seemed never to return and the
    results that were made up for them. What an attempt left that failed, and was given up for
    another provider's, stays as it was logged: its transcript does not say so.
    """

    def __init__(self) -> None:
        self._digests: dict[tuple[str, str], str] = {}
        self._made_up: dict[tuple[str, str], Block] = {}
        self._closed: dict[tuple[str, str], Block] = {}
        self._given_up: set[tuple[str, str]] = set()

    @classmethod
    def of_log(cls, paths: AgentPaths) -> Logged:
        """Read all of them from an agent's log."""
        found = cls()
        attempt: set[tuple[str, str]] = set()
        for record in read_records(paths.log):
            if record.event == "turn.start":
                attempt = set()
            elif record.event == "provider.fallback":
                found._given_up |= attempt
            elif record.event == "block" and isinstance(block := record.data.get("block"), dict):
                found.add(block)
                attempt.add(block_key(block))
        return found

    def add(self, block: Block) -> None:
        """Take note of a block as it was logged."""
        self._digests[block_key(block)] = _digest(block)
        self._given_up.discard(block_key(block))
        if block.get("type") == "tool_result" and block.get("synthetic"):
            self._made_up[_answered(block)] = block
        elif block.get("type") == "tool_use" and _answered(block) in self._made_up:
            self._closed[_answered(block)] = block

    def has(self, block: Block) -> bool:
        """Tell whether the log has a block of this id."""
        return block_key(block) in self._digests

    def differs(self, block: Block) -> bool:
        """Tell whether the log has no such block, or has it differently."""
        key = block_key(block)
        return key not in self._given_up and self._digests.get(key) != _digest(block)

    def replaced_by(self, block: Block) -> Iterator[Block]:
        """Yield, as superseded, what one of the client's takes the place of.

        A result, that of one which was made up; a call, that of one which only the stream knew and
        which bears another id.
        """
        kind, key = block.get("type"), _answered(block)
        replaced = []
        if kind in ("tool_use", "subagent"):
            replaced.append(self._closed.pop(key, None))
        if kind == "tool_result" or (kind == "subagent" and "output" in block):
            replaced.append(self._made_up.pop(key, None))
        for other in replaced:
            if other is not None and block_key(other) != block_key(block):
                yield {**other, "superseded": True}


def _answered(block: Block) -> tuple[str, str]:
    return str(block.get("conversationId")), str(block.get("toolUseId"))


def _digest(block: Block) -> str:
    compared = {name: block[name] for name in _COMPARED if name in block}
    try:
        return short_hash(jsontext.encode(compared))
    except Invalid:
        return short_hash(jsontext.encode(jsontext.clean(compared, set())))


def unlogged_blocks(
    architecture: Architecture,
    sources: Sequence[Source],
    logged: Logged,
    since: Mapping[str, int],
) -> Iterator[Block]:
    """Yield the blocks that transcripts show and the log lacks, or has differently, in their order.

    What was logged and is gone from the transcripts keeps its record.

    Args:
        sources: the session's main transcript and its subagents'.
        since: by source name, the offset in bytes from which on rows are new. Of older rows, only
            blocks in `logged` are compared.
    """
    reader = architecture.reader
    if reader is None:
        return
    with registry.adapter_errors(architecture):
        sessions = reader.discover(sources)
    for files in sessions:
        from agentsdir.engine.parsing import Found, parse_session

        sink = parse_session(Found(architecture, files), hidden=False)
        for block in sink.blocks("all"):
            place = block.get("source") or {}
            start = since.get(str(place.get("file")))
            offset = place.get("offset")  # none for what opens and closes a thread
            is_new = start is not None and (offset is None or offset >= start)
            if not logged.has(block):
                if not is_new or block.get("superseded"):
                    continue
            elif not logged.differs(block):
                continue
            block = {**block, "source": None}
            yield from logged.replaced_by(block)
            yield block
