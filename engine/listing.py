"""Which agents `list` shows, and in which order (docs/commands.md, "Lists")."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.lookup import MAX_DEPTH, document_row, parent_id, unreadable_row
from agentsdir.formats import times
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from agentsdir.engine.lookup import ListedAgent

WAITING, RUNNING, UNREADABLE = "waiting", "running", "unreadable"
STATES = (*SessionState, "idle", RUNNING, WAITING)
"""What can be asked for as a state: those of sessions, and what an agent does at the moment."""
_LENGTH = len("2026-01-02T03:04:05.678900Z")
SHORT = 8
"""Characters of an id that are shown at least."""


class Wanted(NamedTuple):
    """Which agents a list shows: those that fit all that is given.

    Of several `states` or `providers` one must fit; an agent must have all of the `tags`. `folder`
    is the working directory, by its real path. `since` is a time as `to_text` writes it.
    `everyone` is whether ephemeral agents, and closed ones, are shown that no state asks for.
    """

    everyone: bool = False
    folder: str = ""
    states: frozenset[str] = frozenset()
    providers: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    since: str = ""

    def fits(self, document: dict[str, Any], row: dict[str, Any]) -> bool:
        """Return whether an agent is shown, unless `hides` says that it is not."""
        return not (
            (document["ephemeral"] and not self.everyone)
            or (self.folder and row["cwd"] != self.folder)
            or (self.providers and row["provider"] not in self.providers)
            or (self.tags and not self.tags.issubset(row["tags"]))
            or (self.since and last_change(row) < self.since)
            or (
                self.states and {row["state"], row["status"], state_of(row)}.isdisjoint(self.states)
            )
        )

    def hides(self, row: dict[str, Any]) -> bool:
        """Return whether an agent is left out because it is closed."""
        return row["state"] == "terminated" and not self.everyone and not self.states


class Entry(NamedTuple):
    """One agent of a list.

    `changed` says when it was used last, in a form that sorts as text. `shown` is what is printed,
    so that nothing else of an agent is held.
    """

    changed: str
    agent_id: str
    parent: str | None
    shown: Any


class Listing:
    """What a list shows of agents.

    `entries` are in the order of the agents until they are sorted. `others` are agents that only a
    tree may show: below an entry. `hidden` is how many are left out because they are closed.

    Args:
        wanted: which agents are shown.
        make: returns what is printed of a row.
        tell: is called with each agent that is damaged or cannot be read.
        tree: whether to keep the others.
    """

    def __init__(
        self,
        wanted: Wanted,
        make: Callable[[dict[str, Any]], Any],
        tell: Callable[[ListedAgent], None],
        *,
        tree: bool = False,
    ) -> None:
        self.entries: list[Entry] = []
        self.others: list[Entry] = []
        self.hidden = 0
        self._wanted = wanted
        self._make = make
        self._tell = tell
        self._tree = tree

    def add(self, listed: ListedAgent) -> None:
        """Take up one agent."""
        document = listed.document
        if document is None or listed.findings:
            self._tell(listed)
        if document is None:
            # A filter asks for what such an agent cannot say.
            if self._wanted._replace(everyone=False) == ALL:
                row = unreadable_row(listed)
                self.entries.append(Entry("", listed.paths.id, None, self._make(row)))
            return
        row = document_row(listed.paths, document)
        chosen = self._wanted.fits(document, row)
        if chosen and self._wanted.hides(row):
            self.hidden += 1
            chosen = False
        if chosen or self._tree:
            place = self.entries if chosen else self.others
            parent = parent_id(document) if self._tree else None
            place.append(Entry(last_change(row), listed.paths.id, parent, self._make(row)))

    def newest_first(self) -> list[Entry]:
        """Return the entries, the one that was used last first; equal ones by id."""
        self.entries.sort(key=attrgetter("changed"), reverse=True)
        return self.entries

    def as_tree(self) -> Iterator[tuple[Entry, tuple[bool, ...]]]:
        """Yield entries, each followed by all agents below it, closed ones too.

        Beside an entry stands, for each level from the root down, whether siblings follow.
        """
        entries = self.newest_first()
        children: dict[str | None, list[Entry]] = {}
        for entry in sorted([*entries, *self.others], key=attrgetter("changed"), reverse=True):
            children.setdefault(entry.parent, []).append(entry)
        chosen = {entry.agent_id for entry in entries}
        seen: set[str] = set()
        # Those whose parent is shown come below it. Parents that go round have no top.
        tops = [entry for entry in entries if entry.parent not in chosen]
        for top in (*tops, *entries):
            waiting: list[tuple[Entry, tuple[bool, ...]]] = [(top, ())]
            while waiting:
                entry, levels = waiting.pop()
                if entry.agent_id in seen:
                    continue
                seen.add(entry.agent_id)
                yield entry, levels
                below = children.get(entry.agent_id, ())
                waiting += [
                    (child, (*levels, at > 0)[:MAX_DEPTH])
                    for at, child in enumerate(reversed(below))
                ]


ALL = Wanted()
"""What a list shows that is asked for nothing."""


def state_of(row: dict[str, Any]) -> str:
    """Return in one word what an agent does: it waits, it runs, or else its session's state."""
    if row.get("question"):
        return WAITING
    return RUNNING if row["status"] == RUNNING else str(row["state"])


def _states_of(row: dict[str, Any]) -> tuple[str, ...]:
    return row["state"], row["status"], state_of(row)


def last_change(row: dict[str, Any]) -> str:
    """Return when an agent was used last, or made, as `to_text` writes it.

    It is empty if the log has no valid time.
    """
    turn, creation = row["lastActivity"], row["createdAt"]
    return max(_canonical(turn), _canonical(creation)) if turn else _canonical(creation)


def _canonical(ts: str) -> str:
    if len(ts) == _LENGTH and ts[-1] == "Z":
        return ts
    try:
        return times.to_text(times.from_text(ts))
    except (ValueError, OverflowError):
        return ""


def native_owners(agents: Iterable[ListedAgent]) -> dict[tuple[str, str], ListedAgent]:
    """Return, by architecture and native id, the agents that go on with a client's session.

    Of several the live one that was used last counts.
    """
    owners: dict[tuple[str, str], tuple[tuple[bool, str], ListedAgent]] = {}
    for listed in agents:
        said = listed.document
        if said is None:
            continue
        rank = (listed.is_live, last_change(said))
        native = (said["native"].get("architecture", ""), said["native"]["id"])
        if native not in owners or owners[native][0] < rank:
            owners[native] = rank, listed
    return {native: listed for native, (_, listed) in owners.items()}


def other_names(listed: ListedAgent) -> tuple[str, ...]:
    """Return what names an agent beside its id: its session's id, and its name."""
    said = listed.document
    if said is None:
        return ()
    return (said["sessionId"], said["name"]) if said["name"] else (said["sessionId"],)


def short_length(agent_ids: AbstractSet[str], others: AbstractSet[str]) -> int:
    """Return how many characters of an id name an agent, the same number for all.

    Args:
        agent_ids: the ids of all agents.
        others: their session ids and names, which a word of the command line could mean, too.
    """
    longest = max(map(len, agent_ids), default=SHORT)
    for length in range(SHORT, longest):
        beginnings = {one[:length] for one in agent_ids}
        if len(beginnings) == len(agent_ids) and beginnings.isdisjoint(
            one[:length] for one in others
        ):
            return length
    return longest
