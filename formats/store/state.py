"""What an agent is: its session, its state, and how state.json holds them (SPEC.md, "Events")."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter, itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from agentsdir.formats.blocks import COUNTED, no_usage
from agentsdir.formats.errors import SessionStateError
from agentsdir.formats.jsontext import MAX_INT
from agentsdir.formats.store.log import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# The session record and its state machine (seed session-model).
#
# created → active → suspended → active …; active, suspended and created may be terminated. The
# last start is ours: a session that never ran can be given up too.

COUNTERS = ("turns", "failedTurns", "messages", "blocks")


class SessionState(StrEnum):
    """The durable state of a session."""

    CREATED = "created"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    TERMINATED = "terminated"


TRANSITIONS: dict[SessionState, tuple[SessionState, ...]] = {
    SessionState.CREATED: (SessionState.ACTIVE, SessionState.TERMINATED),
    SessionState.ACTIVE: (SessionState.SUSPENDED, SessionState.TERMINATED),
    SessionState.SUSPENDED: (SessionState.ACTIVE, SessionState.TERMINATED),
    SessionState.TERMINATED: (),
}


def check_transition(old: SessionState, new: SessionState, agent: str = "") -> None:
    """Raise `SessionStateError`, naming both states, unless `old` may become `new`."""
    if new not in TRANSITIONS[old]:
        whose = f"agent {agent}: " if agent else ""
        hint = "it was closed for good" if old is SessionState.TERMINATED else None
        raise SessionStateError(
            f"{whose}the session is {old}, and cannot become {new}"
            if old is not new
            else f"{whose}the session is {old} already",
            hint=hint,
        )


@dataclass
class SessionRecord:
    """One provider instance of one agent, as session.json holds it.

    `id` is a uuid in 32 hex digits; times are RFC 3339. `provider_state` is the blob of the last
    suspension, and empty unless the session is suspended: a blob older than the last turn would
    be wrong, and it is only ever a short cut (decision D23).
    """

    id: str
    state: SessionState = SessionState.CREATED
    provider_name: str = ""
    model: str = ""
    created_at: str = ""
    suspended_at: str | None = None
    provider_state: bytes = b""

    def to_json(self) -> dict[str, Any]:
        """Return session.json, with the keys of the seed session-model in its order."""
        return {
            "id": self.id,
            "state": self.state.value,
            "provider_name": self.provider_name,
            "model": self.model,
            "created_at": self.created_at,
            "suspended_at": self.suspended_at,
            "provider_state": base64.b64encode(self.provider_state).decode("ascii"),
        }


HEAD = 4
"""How many waiting messages state.json holds itself; it says where the log has the others."""


class Run(NamedTuple):
    """Waiting messages that were enqueued one after the other.

    `first` is the number of the first one among all that were ever enqueued, `messages` how many
    they are; the record of the first one begins at byte `offset` of the log.
    """

    first: int
    messages: int
    offset: int


class Waiting(NamedTuple):
    """A waiting message: its number among all messages, and the byte where its record begins."""

    message: dict[str, Any]
    number: int = 0
    offset: int = 0


class Inbox(Sequence[dict[str, Any]]):
    """Messages in their order. Whether one waits is known without a search.

    One that state.json gave out reads the messages behind the first `HEAD` from the log when they
    are asked for. To add a message, none is read.

    Args:
        known: from the first.
        more: the runs behind them, of which `read` gives the messages.
    """

    def __init__(
        self,
        known: Iterable[Waiting] = (),
        more: Iterable[Run] = (),
        read: Callable[[Run], Iterable[Waiting]] = lambda _run: (),
    ) -> None:
        self._known = list(known)
        self._more = list(more)
        self._read = read
        # How many have an id: a foreign writer may have used one twice.
        self._ids = dict(Counter(one.message["messageId"] for one in self._known))

    def append(self, message: dict[str, Any], number: int, offset: int) -> None:
        """Add a message as the last one."""
        if self._more:
            _extend(self._more, number, offset)
        else:
            self._add(Waiting(message, number, offset))

    def has(self, message_id: str) -> bool:
        """Return whether a message with this id waits."""
        self._read_all()
        return message_id in self._ids

    def without(self, message_ids: Iterable[str]) -> Inbox:
        """Return the messages that have none of these ids; often it is the first one that goes."""
        self._read_all()
        gone = self._ids.keys() & message_ids
        if not gone:
            return self
        left = Inbox()
        if self[0]["messageId"] in gone and sum(self._ids[one] for one in gone) == 1:
            left._known = self._known[1:]
        else:
            left._known = [one for one in self._known if one.message["messageId"] not in gone]
        left._ids = self._ids.copy()
        for message_id in gone:
            del left._ids[message_id]
        return left

    @property
    def head(self) -> list[dict[str, Any]]:
        """The first messages, as state.json holds them."""
        return [one.message for one in self._known[:HEAD]]

    @property
    def more(self) -> list[dict[str, Any]]:
        """The runs behind the first messages, as state.json holds them."""
        runs: list[Run] = []
        for one in self._known[HEAD:]:
            _extend(runs, one.number, one.offset)
        return [run._asdict() for run in (*runs, *self._more)]

    def _add(self, one: Waiting) -> None:
        self._known.append(one)
        message_id = one.message["messageId"]
        self._ids[message_id] = self._ids.get(message_id, 0) + 1

    def _read_all(self) -> None:
        if not self._more:
            return
        found = [one for run in self._more for one in self._read(run)]
        self._more = []
        for one in found:
            self._add(one)

    def __len__(self) -> int:
        return len(self._known) + sum(run.messages for run in self._more)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for one in self._known:
            yield one.message
        if self._more:
            read = len(self._known)
            self._read_all()
            for one in self._known[read:]:
                yield one.message

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(at, slice):
            return list(self)[at]
        if not 0 <= at < len(self._known):
            self._read_all()
        return self._known[at].message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def _extend(runs: list[Run], number: int, offset: int) -> None:
    """Add a message to the last run, or begin one where another message came between."""
    if runs and number == runs[-1].first + runs[-1].messages:
        runs[-1] = runs[-1]._replace(messages=runs[-1].messages + 1)
    else:
        runs.append(Run(number, 1, offset))


def pending_count(document: dict[str, Any]) -> int:
    """Return how many messages wait, as a state.json says."""
    held: list[Any] = document["pending"]
    more: list[dict[str, int]] = document.get("pendingMore", [])
    return len(held) + sum(run["messages"] for run in more)


@dataclass(kw_only=True)
class AgentState:
    """One agent as of `position` in its log.

    `pending` are messages no turn has taken yet, in log order; `open_turn` is a turn without an
    end, or with messages whose delivery is not yet recorded. `transcripts` are entries by path of
    the native session in force, less recorded streams; in a turn that a stand-in takes, also those
    of the sessions that it leaves. `cost` is the sum in US dollars of what clients said, None where
    none said anything. `last_input` is when the last message came that was no notice; `children`
    are spawned agents that have not ended, by id; `undelivered` are the ids of outgoing texts that
    no connector has taken. `missed` is whether the native session in force may lack turns that
    another one ran. `imported` is whether what the log says comes from a bundle, in part at least.
    `settings` are what `agent.set` said of `systemPrompt` and `permissionMode`, in place of the
    creation; `budget` is what the agent may spend, empty for no limit.
    `unsent` are messages that could not be put into another agent's inbox, by id: `to` whom, and
    what its `message` says. `props` are those of the last render; `com_state` and `data_cache` are
    values that a program keeps with the agent, by name; `runner` is the name of the execution
    runner that the agent's tools have run in, empty for none.

    No part of state.json: `synced` are the entries of all transcripts, of every session, that this
    fold has come by; `has_all_synced` is whether the log has no others; `is_unlisted` is whether
    manifest.json may lack some.
    """

    agent_id: str
    session: SessionRecord
    architecture: str
    descriptor: dict[str, Any]
    native: dict[str, Any]
    name: str | None = None
    profile: str = ""
    cwd: str = ""
    title: str | None = None
    last_activity: str | None = None
    pending: Inbox = field(default_factory=Inbox)
    open_turn: dict[str, Any] | None = None
    transcripts: dict[str, dict[str, Any]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    usage: dict[str, Any] = field(default_factory=no_usage)
    cost: float | None = None
    last_input: str | None = None
    children: dict[str, dict[str, Any]] = field(default_factory=dict)
    undelivered: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    limits: dict[str, Any] = field(default_factory=dict)
    fallbacks: list[str] = field(default_factory=list)
    ephemeral: bool = False
    missed: bool = False
    imported: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    budget: dict[str, Any] = field(default_factory=dict)
    unsent: dict[str, dict[str, Any]] = field(default_factory=dict)
    props: dict[str, Any] = field(default_factory=dict)
    com_state: dict[str, Any] = field(default_factory=dict)
    data_cache: dict[str, Any] = field(default_factory=dict)
    runner: str = ""
    position: Position = field(default_factory=Position)
    history_size: int = 0
    synced: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False)
    has_all_synced: bool = field(default=False, compare=False)
    is_unlisted: bool = field(default=False, compare=False)

    @property
    def parent(self) -> str | None:
        """The parent agent of a subagent."""
        parent = self.descriptor.get("parentAgentId")
        return parent if isinstance(parent, str) else None

    def to_json(self) -> dict[str, Any]:
        """Return state.json without its digest."""
        document = dict(zip(_KEYS, _read_all(self), strict=True))
        document["state"] = self.session.state.value
        for key in _ONLY_IF_TRUE:
            if not document[key]:
                del document[key]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any], read: Callable[[Run], Iterable[Waiting]]) -> Self:
        """Return the state that a state.json holds, less the provider blob (session.json has it).

        Args:
            read: gives messages of the inbox that state.json does not hold.

        Raises `KeyError`, `TypeError` or `ValueError` for a document that `to_json` does not make:
        a digest can be made for any document.
        """
        check_shape(document)
        parts: dict[str, dict[str, Any]] = {
            "": {},
            "session": {},
            "position": {},
            "pending": {"more": []},
        }
        for key, owner, name in _PLACES:
            if key in document:
                parts[owner][name] = document[key]
        session = parts["session"]
        session["state"] = SessionState(session["state"])
        inbox = parts["pending"]
        return cls(
            session=SessionRecord(**session),
            position=Position(**parts["position"]),
            pending=Inbox(map(Waiting, inbox["head"]), (Run(**run) for run in inbox["more"]), read),
            **parts[""],
        )


class _StateKey(NamedTuple):
    """One key of state.json: the attribute that it holds, and the shape of its value.

    A shape is a type (`int` is 0 to `MAX_INT`, and no bool), a tuple of shapes of which one must
    fit, ``[shape]`` for a list, ``{str: shape}`` for an object of such values, or an object's
    required keys with their shapes.
    """

    key: str
    attribute: str
    shape: Any


_TEXT_OR_NULL = (str, NoneType)
_DEFERRED = ({"child": str, "name": str}, {"to": str, "messageId": str})
_TURN = {
    "turnId": str, "messageIds": [str], "ended": object, "aborted": object, "deferred": [_DEFERRED],
}  # fmt: skip
_MESSAGE = {"messageId": str, "sender": str, "kind": str, "content": [dict]}
_RUN = dict.fromkeys(Run._fields, int)
_UNSENT = {"to": str, "message": {"message_id": str, "content": [dict]}}

# In the order of state.json.
_STATE_KEYS = (
    _StateKey("sessionId", "session.id", str),
    _StateKey("type", "architecture", str),
    _StateKey("agentProfileReference", "profile", str),
    _StateKey("createdAt", "session.created_at", str),
    _StateKey("lastActivity", "last_activity", _TEXT_OR_NULL),
    _StateKey("lastInput", "last_input", _TEXT_OR_NULL),
    _StateKey("agentId", "agent_id", str),
    _StateKey("name", "name", _TEXT_OR_NULL),
    _StateKey("title", "title", _TEXT_OR_NULL),
    _StateKey("tags", "tags", [str]),
    _StateKey("state", "session.state", str),
    _StateKey("suspendedAt", "session.suspended_at", _TEXT_OR_NULL),
    _StateKey("provider", "session.provider_name", str),
    _StateKey("model", "session.model", str),
    _StateKey("cwd", "cwd", str),
    _StateKey("native", "native", {"id": str}),
    _StateKey("descriptor", "descriptor", {"type": str}),
    _StateKey("limits", "limits", dict),
    _StateKey("fallbacks", "fallbacks", [str]),
    _StateKey("ephemeral", "ephemeral", bool),
    _StateKey("counters", "counters", dict.fromkeys(COUNTERS, int)),
    _StateKey("usage", "usage", {**dict.fromkeys(COUNTED, int), "exact": bool}),
    _StateKey("costUsd", "cost", (int, float, NoneType)),
    _StateKey("pending", "pending.head", [_MESSAGE]),
    _StateKey("pendingMore", "pending.more", [_RUN]),
    _StateKey("openTurn", "open_turn", (NoneType, _TURN)),
    _StateKey("children", "children", {str: {"name": str, "status": str}}),
    _StateKey("undelivered", "undelivered", [str]),
    _StateKey("missed", "missed", bool),
    _StateKey("imported", "imported", bool),
    _StateKey("settings", "settings", {str: str}),
    _StateKey("budget", "budget", dict),
    _StateKey("unsent", "unsent", {str: _UNSENT}),
    _StateKey("props", "props", dict),
    _StateKey("comState", "com_state", dict),
    _StateKey("dataCache", "data_cache", dict),
    _StateKey("runner", "runner", str),
    _StateKey("transcripts", "transcripts", {str: {"role": str, "size": int}}),
    _StateKey("historySize", "history_size", int),
    _StateKey("logSize", "position.size", int),
    _StateKey("lastSeq", "position.last_seq", int),
    _StateKey("lastHash", "position.last_hash", str),
    _StateKey("unreadable", "position.unreadable", int),
    _StateKey("logLines", "position.lines", int),
)


_ONLY_IF_TRUE = (
    *("pendingMore", "imported", "settings", "budget", "unsent"),
    *("props", "comState", "dataCache", "runner"),
)
_KEYS = tuple(saved.key for saved in _STATE_KEYS)
# Key, `session`, `position`, `pending` or nothing, and the attribute there.
_PLACES = tuple((key, *path.rpartition(".")[::2]) for key, path, _ in _STATE_KEYS)
_read_all = attrgetter(*(saved.attribute for saved in _STATE_KEYS))
# A state.json is checked for each agent that is listed. Most of its values have but a type, and
# most agents have the same types.
_REQUIRED = [(saved.key, saved.shape) for saved in _STATE_KEYS if saved.key not in _ONLY_IF_TRUE]
_OPTIONAL = [(saved.key, saved.shape) for saved in _STATE_KEYS if saved.key in _ONLY_IF_TRUE]
_read_required = itemgetter(*(key for key, _ in _REQUIRED))
_read_counts = itemgetter(*(key for key, shape in _REQUIRED if shape is int))
# Key, shape, and whether an empty value has it.
_NESTED = [
    (key, shape, not isinstance(shape, dict) or str in shape)
    for key, shape in _REQUIRED
    if not isinstance(shape, type) and shape != _TEXT_OR_NULL and key != "costUsd"
]
_known_types: set[tuple[type, ...]] = set()
"""Types of all required values, as far as they are right; bounded by what a shape allows."""


def check_shape(document: dict[str, Any]) -> None:
    """Check that a decoded state.json is one that `AgentState.to_json` could have made.

    Raises `KeyError`, `TypeError` or `ValueError`.
    """
    types = tuple(map(type, _read_required(document)))
    if types not in _known_types:
        for kind, (key, shape) in zip(types, _REQUIRED, strict=True):
            if not _may_be(kind, shape):
                raise TypeError(key)
        _known_types.add(types)
    counts = _read_counts(document)
    if min(counts) < 0 or max(counts) > MAX_INT:
        raise ValueError("a count")
    for key, shape, may_be_empty in _NESTED:
        value = document[key]
        if (value or not may_be_empty) and not _fits(value, shape):
            raise TypeError(key)
    for key, shape in _OPTIONAL:
        if key in document and not _fits(document[key], shape):
            raise TypeError(key)
    SessionState(document["state"])
    more = document.get("pendingMore", ())
    held = len(document["pending"])
    if held != HEAD if more else held > HEAD:
        raise ValueError("pending")
    if not all(run.keys() == _RUN.keys() and run["messages"] for run in more):
        raise ValueError("pendingMore")


def _may_be(kind: type, shape: Any) -> bool:
    """Tell whether a value of a type may have a shape."""
    if isinstance(shape, tuple):
        return any(_may_be(kind, one) for one in shape)
    return kind is shape or kind is type(shape)


def _fits(value: Any, shape: Any) -> bool:
    """Tell whether a decoded JSON value has a shape (see `_StateKey`)."""
    kind = type(value)
    if kind is shape:
        return kind is not int or 0 <= value <= MAX_INT
    form = type(shape)
    if form is type:
        return shape is object
    if form is tuple:
        return kind in shape or any(_fits(value, one) for one in shape)
    if kind is not form:
        return False
    if form is list:
        return not value or all(_fits(item, shape[0]) for item in value)
    if str in shape:
        return not value or all(_fits(item, shape[str]) for item in value.values())
    for name, inner in shape.items():
        if name not in value:
            return False
        item = value[name]
        # As most are, without a call.
        if type(item) is inner and (inner is not int or 0 <= item <= MAX_INT):
            continue
        if not _fits(item, inner):
            return False
    return True
