"""The timeline of a session: the blocks that its model is given (SPEC.md, "The timeline")."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.progress import ProgressFold, copies
from agentsdir.formats import jsontext
from agentsdir.formats.blocks import BLOCKS, MAIN, block_key, check_block
from agentsdir.formats.errors import Invalid, UsageError
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.events import check_event, is_creation
from agentsdir.formats.store.log import read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import TypeAlias

    from agentsdir.engine.progress import Progress
    from agentsdir.engine.services import Services
    from agentsdir.formats.blocks import Block
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

    Key: TypeAlias = tuple[str, str]

_ROLE_OF = {
    "user": "user",
    "model": "assistant",
    "tool": "tool",
    "subagent": "tool",
    "client": "system",
}
ROLES = tuple(dict.fromkeys(_ROLE_OF.values()))
"""Who a block is from, in the words of models."""
_READ_BY_MODELS = ("content", "toolName", "input", "output", "message")
_OF_CALLS = ("tool_use", "tool_result")
_BYTES_OF_TOKEN = 4


class TimelineFold:
    """Folds the records of a log into a timeline.

    Args:
        most: how many blocks of it are held, the newest; None holds all.

    Attributes:
        lacks: whether it needs blocks that it does not hold any more, and so has to be made again
            without a limit.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        # Blocks since the last reset, in the order in which they came; None for one not held.
        self._logged: dict[Key, Block | None] = {}
        self._timeline: dict[Key, Block] = {}
        self._superseded = 0  # of the timeline
        # Blocks beyond the limit, of those that no `block` record has.
        self._older: set[Key] = set()
        self._is_cut = False
        self.lacks = False

    def take(self, record: Record) -> None:
        """Take the next record of the log."""
        if record.event == "block":
            block = record.data.get("block")
            if isinstance(block, dict):
                self._add(block_key(block), block)
        elif record.event == "timeline.set":
            entries = record.data.get("entries")
            if isinstance(entries, list):
                self._set(entries)
        elif record.event == "history.reset" or is_creation(record):
            self._begin()

    def _add(self, key: Key, block: Block) -> None:
        before = self._timeline.get(key)
        is_new = key not in self._logged and key not in self._older
        is_shown = before is not None or (is_new and key[0] == MAIN)
        self._logged[key] = block if is_shown or self._most is None else None
        if is_shown:
            self._timeline[key] = block
            self._superseded += _is_superseded(block)
            self._superseded -= before is not None and _is_superseded(before)
            self._cut()

    def _set(self, entries: list[Any]) -> None:
        before, self._timeline = self._timeline, {}
        for entry in entries:
            said = entry if isinstance(entry, dict) else {}
            block = said.get("block")
            key = (said.get("conversation_id"), said.get("id"))
            if isinstance(block, dict):
                self._timeline.setdefault(block_key(block), block)
            elif all(isinstance(part, str) for part in key) and key in self._logged:
                held = self._logged[key]
                self.lacks |= held is None
                self._timeline.setdefault(key, held or {})
        if self._most is not None:
            self._let_go(before.keys() - self._timeline.keys())
        self._superseded = sum(map(_is_superseded, self._timeline.values()))
        self._older.clear()
        self._is_cut = False
        self._cut()

    def _cut(self) -> None:
        """Let go of the oldest blocks beyond the limit."""
        if self._most is None:
            return
        over = len(self._timeline) - self._superseded - self._most
        # One that was held counts no longer, and an older one is to take its place.
        self.lacks |= over < 0 and self._is_cut
        while over > 0:
            key = next(iter(self._timeline))
            is_superseded = _is_superseded(self._timeline.pop(key))
            self._superseded -= is_superseded
            over -= not is_superseded
            self._is_cut = True
            if key not in self._logged:
                self._older.add(key)
            self._let_go((key,))

    def _let_go(self, keys: Collection[Key]) -> None:
        for key in keys:
            if key in self._logged:
                self._logged[key] = None

    def limit(self, most: int | None) -> None:
        """Hold no more than so many blocks from here on."""
        self._most = most
        if most is not None:
            self._let_go(self._logged.keys() - self._timeline.keys())
            self._cut()

    def entries(self) -> list[Block]:
        """Return the blocks of the timeline, as far as they are held."""
        if not self._superseded:
            return list(self._timeline.values())
        return [block for block in self._timeline.values() if not _is_superseded(block)]

    def history(self) -> list[Block]:
        """Return the blocks of the main conversation since the last reset, as far as held."""
        return [
            block
            for (conversation, _), block in self._logged.items()
            if conversation == MAIN and block is not None and not _is_superseded(block)
        ]

    def entry(self, block: Block) -> dict[str, Any]:
        """Return the entry of a `timeline.set` that stands for a block.

        Raises `Invalid` (kind ``bad-block``) for one that the log does not have, and that no log
        may have.
        """
        key = block_key(block)
        logged = self._logged.get(key)
        if logged is not None and repr(copies([logged])) == repr([block]):
            return {"conversation_id": key[0], "id": key[1]}
        check_block(block)
        return {"block": block}


def _as_blocks(given: Any) -> Sequence[Block]:
    """Return what a program gave as a timeline, if it is a list of objects."""
    if not isinstance(given, list | tuple) or not all(isinstance(one, dict) for one in given):
        raise Invalid(f"a timeline is a list of blocks, and not {given!r:.140}", kind="bad-block")
    return given


def _with_source(block: Any) -> Any:
    """Return a block of a program, which is of no file, with the field that says so."""
    if not isinstance(block, dict) or "source" in block or role_of(block) is None:
        return block  # one of a newer version, whose type is not known, stays as it is
    return {**block, "source": None}


def _is_superseded(block: Block) -> bool:
    return block.get("superseded") is True


class SessionNow(NamedTuple):
    """An agent at one point of its log: its state, its timeline, and how far it has come.

    `findings` are what is wrong with the log, as far as it was read since the look before.
    """

    state: AgentState
    entries: list[Block]
    progress: Progress
    findings: tuple[Finding, ...]


class Timeline:
    """The timeline of an agent, which is read on in its log. Safe between threads.

    The log is read when something is asked for, and then only what is new in it. What is returned
    are copies.

    Args:
        most: how many blocks are held in memory and returned, the newest; None for all. The log
            keeps them all.

    The methods raise what `read_agent` raises.
    """

    def __init__(self, paths: AgentPaths, most: int | None = None) -> None:
        if most is not None and most < 1:
            raise UsageError(f"a timeline holds one entry at least, not {most}")
        self._paths = paths
        self._most = most
        self._lock = Lock()
        self._state: AgentState | None = None
        self._fold = TimelineFold(most)
        self._progress = ProgressFold()
        self._found: tuple[Finding, ...] = ()

    def look(self) -> SessionNow:
        """Return the agent as it is now."""
        with self._lock:
            state = replace(self._read())
            return SessionNow(
                state, copies(self._fold.entries()), self._progress.progress(), self._found
            )

    def entries(self) -> list[Block]:
        """Return the blocks of the timeline."""
        return copies(self._entries())

    def select(
        self,
        limit: int | None = None,
        max_tokens: int | None = None,
        roles: Collection[str] = (),
    ) -> list[Block]:
        """Return what `select` takes from the timeline."""
        return copies(select(self._entries(), limit, max_tokens, roles))

    def conversation_history(self) -> list[Block]:
        """Return all blocks of the main conversation since the last reset.

        No `timeline.set` and no limit leaves any out. With a limit the log is read from its start.
        """
        if self._most is None:
            with self._lock:
                self._read()
                return copies(self._fold.history())
        whole = TimelineFold()
        for record in read_records(self._paths.log):
            whole.take(record)
        return copies(whole.history())

    def replace(
        self, services: Services, change: Callable[[list[Block]], Sequence[Block]]
    ) -> list[Block]:
        """Record what takes the place of the timeline, and return it; the same is not recorded.

        Args:
            change: gets the blocks of the timeline and returns those that it is to have. It is
                called again if the timeline has changed meanwhile.

        Raises `Invalid` for what is no block (kind ``bad-block``), no JSON or too large,
        `UsageError` for a block that is there twice, and `SessionStateError` (kind ``closed``) for
        a closed agent.
        """
        while True:
            before = self._entries()
            given = repr(copies(before))  # `==` takes 1 for true
            wanted = [_with_source(block) for block in _as_blocks(change(copies(before)))]
            jsontext.encode(wanted)
            if len({block_key(block) for block in wanted}) < len(wanted):
                raise UsageError("a block stands twice in a timeline", kind="bad-block")
            wanted = copies(wanted)
            with (
                services.disk.synced_at_end(),
                write_agent(self._paths, disk=services.disk) as writer,
            ):
                check_event(writer.state, "timeline.set", {})
                # No record is appended meanwhile.
                if self._entries() == before:
                    if repr(wanted) != given:
                        entries = [self._fold.entry(block) for block in wanted]
                        writer.append("timeline.set", {"entries": entries}, services.now())
                    return wanted

    def _entries(self) -> list[Block]:
        with self._lock:
            self._read()
            return self._fold.entries()

    def _read(self) -> AgentState:
        state = self._read_on(self._most)
        if self._fold.lacks:
            self._state = None
            state = self._read_on(None)
            self._fold.limit(self._most)
        return state

    def _read_on(self, most: int | None) -> AgentState:
        def take(state: AgentState, record: Record | None) -> None:
            if state is not self._state:  # the log is read from its start
                self._state = state
                self._fold, self._progress = TimelineFold(most), ProgressFold()
            if record is not None:
                self._fold.take(record)
                self._progress.take(record)

        known = self._state
        try:
            reading = read_agent(self._paths, whole=known is None, known=known, follow=take)
        except BaseException:
            # An interrupt between a record and its fold: the log is read anew.
            self._state = None
            raise
        self._found = reading.findings
        return reading.state


def select(
    entries: Sequence[Block],
    limit: int | None = None,
    max_tokens: int | None = None,
    roles: Collection[str] = (),
) -> list[Block]:
    """Return the newest blocks of a timeline, in its order.

    A tool's call and its result are taken together or not at all: models refuse one alone.

    Args:
        limit: how many at most; None for any number.
        max_tokens: how many tokens they have at most, as `estimated_tokens` counts; None for any.
        roles: of `ROLES`; empty for all.

    Raises `UsageError` for a role that is none, and a number below 0.
    """
    if unknown := set(roles) - set(ROLES):
        raise UsageError(f"{min(unknown)!r} is no role", hint=f"one of {', '.join(ROLES)}")
    if min(limit or 0, max_tokens or 0) < 0:
        raise UsageError("a limit of a timeline is a number from 0 on")
    taken: list[Block] = []
    tokens = 0
    for block in reversed(entries):
        if roles and role_of(block) not in roles:
            continue
        if max_tokens is not None:
            tokens += estimated_tokens(block)
        if len(taken) == limit or (max_tokens is not None and tokens > max_tokens):
            break
        taken.append(block)
    parted = _used(taken) - _paired(taken)
    if parted:  # looked for in the whole timeline, which may be long
        parted &= _paired(entries)
    return [block for block in reversed(taken) if parted.isdisjoint(_used([block]))]


def _used(blocks: Sequence[Block], kinds: Collection[str] = _OF_CALLS) -> set[str]:
    """Return the ids of the calls and results among blocks."""
    return {str(block.get("toolUseId")) for block in blocks if block.get("type") in kinds}


def _paired(blocks: Sequence[Block]) -> set[str]:
    """Return the ids of the calls that are there with their results."""
    return set[str].intersection(*(_used(blocks, {kind}) for kind in _OF_CALLS))


def role_of(block: Block) -> str | None:
    """Return the role of a block, of `ROLES`; None for a type that is not known."""
    row = BLOCKS.get(str(block.get("type")))
    return None if row is None else _ROLE_OF[row.speaker]


def estimated_tokens(block: Block) -> int:
    """Return about how many tokens a block has for a model: a quarter of its bytes.

    Only what a model reads counts. An image counts as its data.
    """
    read = {name: block[name] for name in _READ_BY_MODELS if name in block}
    return -(-len(jsontext.encode_as_is(list(jsontext.copied(read).values()))) // _BYTES_OF_TOKEN)
