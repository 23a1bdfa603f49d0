"""The event log of newer clients, folded as the client itself does when it resumes.

Each row is one of: ``$rewindTo``, a message (an ``id``), ``$set``, a header. The order of these
questions is the client's own. What a fold drops is not lost here: it is only no longer live.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.gemini.transcripts.index import Index
from agentsdir.adapters.gemini.transcripts.names import Names
from agentsdir.adapters.gemini.transcripts.restated import Restated, by_text, sign_of
from agentsdir.adapters.gemini.transcripts.shapes import (
    content_id,
    content_of,
    list_of,
    part_kind,
    plain_text,
    role_of,
)
from agentsdir.adapters.gemini.transcripts.speakers import GIVEN_ANSWER, is_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentsdir.adapters.gemini.transcripts.messages import Message
    from agentsdir.adapters.gemini.transcripts.restated import Sign
    from agentsdir.formats.reading.rows import Row


# What clients say of a session beside its messages.
_METADATA = frozenset(
    [
        "directories",
        "firstUserMessage",
        "hasResumableContent",
        "kind",
        "lastUpdated",
        "memoryScratchpad",
        "messageCount",
        "messages",
        "projectHash",
        "sessionId",
        "startTime",
        "summary",
        "userMessageCount",
    ]
)


class Fold:
    """Folds the rows of one transcript; `live` has the ids of what a resume would load, in order.

    `header` holds the merged session metadata. `session_id` is the first one seen: it must not
    change while a file grows. `amending` counts the rows that change what others say, by reason.

    Args:
        file: the name for the places of what is not known.
        hidden: keep such rows, for hidden blocks.
    """

    def __init__(self, file: str = "", *, hidden: bool = False) -> None:
        self.index = Index(file)
        self.amending: Counter[str] = Counter()
        self._keeps = hidden
        self.header: dict[str, Any] = {}
        self.live: dict[str, None] = {}
        self.session_id = ""
        # The ids made for messages of a document that have none.
        self._names = Names()
        # What a rewind dropped, be it live again or not.
        self._rewound: set[str] = set()
        # What a compaction took from the model: history, which stays live.
        self.history: dict[str, None] = {}
        # What a compaction put in the place of that: it stands where it was written.
        self.summaries: set[str] = set()
        # Ids that a restatement gave to messages we know under an older one, and those of them
        # that stand for several messages.
        self._alias: dict[str, str] = {}
        self._merged: dict[str, list[str]] = {}

    def take(self, row: Row) -> None:
        """Fold one row of a log."""
        index, value = self.index, row.value
        number = index.add_row(row)
        # Asked of every row: a look into the keys is cheaper than `get`.
        if "$rewindTo" in value and isinstance(value["$rewindTo"], str):
            self._rewind(value["$rewindTo"])
            self._amend("rewind", row, number)
        elif "id" in value and isinstance(value["id"], str):
            self._insert(value, value["id"], (number, -1))
        elif "$set" in value and isinstance(value["$set"], dict):
            self._set(value["$set"], number)
            if "messages" not in value["$set"]:
                self._amend("metadata", row, number)
        elif isinstance(value.get("sessionId"), str) and isinstance(value.get("projectHash"), str):
            self.take_header(value, number)
            if isinstance(value.get("messages"), list):
                self._insert_all(value["messages"], number)
            else:
                self._amend("header", row, number)
        else:
            index.add_unknown(value, number)

    def _amend(self, reason: str, row: Row, number: int) -> None:
        self.amending[reason] += not row.salvaged
        if self._keeps:
            self.index.add_record(row.value, number)

    def take_header(self, value: dict[str, Any], number: int) -> None:
        """Merge session metadata."""
        if not value.keys() <= _METADATA:
            for key in value:
                if key not in _METADATA:
                    self.index.note("metadata", key, number)
        for key, item in value.items():
            if key != "messages":
                self.header[key] = item
        if not self.session_id and isinstance(value.get("sessionId"), str):
            self.session_id = value["sessionId"]

    def take_record(self, row: Row) -> None:
        """Take one record of a whole-file document: its header, which begins it, or a message."""
        number = self.index.add_row(row)
        if row.offset == 0:
            self.take_header(row.value, number)
            self.amending["header"] += 1
            return
        if not isinstance(row.value, dict):
            self.index.add_unknown(row.value, number)
            return
        message_id = _id_of(row.value)
        if not isinstance(row.value.get("id"), str):
            # A document restates nothing, so equal messages are several.
            message_id = self._names.unique(message_id)
        self._insert(row.value, message_id, (number, -1))

    def is_live(self, message: Message) -> bool:
        """Tell whether a resume would load a message; what is none, nothing can drop."""
        name = message.id
        return name in self.live or name in self.history or message.role in ("unknown", "record")

    def left_by(self, message: Message) -> str:
        """Say why a message is not live: a rewind dropped it, or a list that left it out."""
        return "rewind" if message.id in self._rewound else "replaced"

    def _insert(self, value: dict[str, Any], message_id: str, place: tuple[int, int]) -> None:
        index = self.index
        if self._alias:
            if message_id in self._merged:
                return
            message_id = self._alias.get(message_id, message_id)
        if message_id not in index.messages:
            # Masking and resuming write all messages again, one by one, under new ids.
            content = content_of(value)
            known = self._same_call(value, (), alone=True) if type(content) is list else None
            if known is not None:
                self._alias[message_id] = message_id = known.id
        index.see(value, message_id, place)
        if message_id not in self.live:
            self.live[message_id] = None
            if message_id not in index.touched:
                index.touched[message_id] = False

    def _set(self, patch: dict[str, Any], number: int) -> None:
        self.take_header(patch, number)
        messages = patch.get("messages")
        if isinstance(messages, list):
            self._take_burst(messages)
            before, self.live = self.live, {}
            compacts = any(self._is_new_snapshot(value) for value in messages)
            self._insert_all(messages, number, before, compacts=compacts)
            if compacts:
                self.history.update((one, None) for one in before if one not in self.live)
                self.summaries.update(one for one in self.live if one not in before)
                self._note_given_answer(messages)
            self.index.move(message_id for message_id in before if message_id not in self.live)
            self.index.move(message_id for message_id in self.live if message_id not in before)

    def _take_burst(self, messages: list[Any]) -> None:
        """Put rows that only wrote the history anew back to the messages that they restate.

        A declined tool, ``/chat resume`` and ``/restore`` append each message that is kept under a
        new id, turns of one role joined, and then list these. Such a list has the last messages
        alone, none of which has counts.
        """
        alias = self._alias
        fresh: dict[str, dict[str, Any]] = {}
        named = set()
        for value in messages:
            if not isinstance(value, dict) or not isinstance(message_id := value.get("id"), str):
                return
            known = alias.get(message_id)
            named.add(message_id if known is None else known)
            if known is None:
                fresh[message_id] = value
        last = list(takewhile(named.__contains__, reversed(self.live)))
        if len(last) == len(self.live) or not fresh or not fresh.keys() <= set(last):
            return
        index = self.index
        burst = [index.messages[message_id] for message_id in fresh]
        if any(message.usage is not None for message in burst):
            return
        for message in burst:
            del self.live[message.id]
        left = (one for one in index.messages if one not in self.live and one not in fresh)
        known_before = [index.messages[one] for one in (*self.live, *left)]
        restated = Restated(index, known_before)
        for message in burst:
            known_as = restated.by(fresh[message.id])
            if not known_as:
                self.live[message.id] = None
                continue
            alias[message.id] = known_as[-1]
            if len(known_as) > 1:
                self._merged[message.id] = known_as
            index.drop(message)

    def _insert_all(
        self,
        messages: list[Any],
        number: int,
        before: dict[str, None] | None = None,
        *,
        compacts: bool = False,
    ) -> None:
        # Messages that the list leaves out by id may stand in it under another one.
        replaced = before or {}
        named: set[str] = set()
        for value in messages:
            if isinstance(value, dict) and isinstance(message_id := value.get("id"), str):
                named.update(self._known_as(message_id))
        free: dict[Sign, list[Message]] | None = None
        for at, value in enumerate(messages):
            if not isinstance(value, dict):
                self.index.add_unknown(value, number, at)
                continue
            message_id = _id_of(value)
            if message_id in self._merged:
                self.live.update(dict.fromkeys(self._merged[message_id]))
                continue
            message_id = self._alias.get(message_id, message_id)
            if message_id not in self.index.messages:
                known = self._same_call(value, named)
                if known is None and replaced:
                    if free is None:
                        free = by_text(self.index.messages[one] for one in replaced)
                        if compacts:
                            _keep_last(free, messages)
                    known = _same_text(value, free, named)
                if known is not None:
                    self._alias[message_id] = message_id = known.id
                    named.add(known.id)
            self.index.see(value, message_id, (number, at))
            if message_id not in self.live:
                self.live[message_id] = None
                if before is None:  # it may have been dropped before, and is back
                    self.index.touched.setdefault(message_id, False)

    def _same_call(
        self, value: dict[str, Any], taken: Any, *, alone: bool = False
    ) -> Message | None:
        """Find the message whose call `value` restates, unless that one stands in its own right.

        Args:
            value: the message, in which calls stand as parts.
            taken: the ids of messages that stand in their own right.
            alone: whether the message stands in a row of its own, in no list.
        """
        for part in list_of(content_of(value)):
            if isinstance(part, dict) and "functionCall" in part and part_kind(part) == "call":
                call = part["functionCall"]
                call_id, name = call.get("id"), call.get("name")
                if isinstance(call_id, str) and isinstance(name, str):
                    bare = call_id.removeprefix(name + "__")
                    if alone and self.index.is_over(bare):
                        continue
                    owner = self.index.calls.get(bare)
                    for maker in self.index.makers.get(bare, () if owner is None else owner[:1]):
                        if maker.id not in taken:
                            return maker
        return None

    def _known_as(self, message_id: str) -> Sequence[str]:
        """Return the messages that an id stands for: one, but for turns that were joined."""
        return self._merged.get(message_id) or (self._alias.get(message_id, message_id),)

    def _is_new_snapshot(self, value: Any) -> bool:
        """Tell whether a message is what /compress leaves, for the first time."""
        if not isinstance(value, dict) or role_of(value) != "user":
            return False
        message_id = _id_of(value)
        if self._alias.get(message_id, message_id) in self.index.messages:
            return False
        return is_snapshot(plain_text(content_of(value)))

    def _note_given_answer(self, messages: list[Any]) -> None:
        """Note the answer that the client gave itself to the snapshot."""
        for value in messages:
            if isinstance(value, dict) and plain_text(content_of(value)) == GIVEN_ANSWER:
                message = self.index.messages.get(_id_of(value))
                if message is not None and message.role == "model":
                    message.continues = True
                    self.index.touch(message.id)

    def _rewind(self, target: str) -> None:
        """Drop a message and all after it; an id that nobody knows drops everything."""
        target = self._known_as(target)[0]
        dropped: list[str] = []
        while self.live and (not dropped or dropped[-1] != target):
            dropped.append(self.live.popitem()[0])
        self._rewound.update(dropped)
        self.index.move(reversed(dropped))


def _id_of(value: dict[str, Any]) -> str:
    message_id = value.get("id")
    return message_id if isinstance(message_id, str) else content_id(value)


def _same_text(
    value: dict[str, Any], free: dict[Sign, list[Message]], named: set[str]
) -> Message | None:
    """Return the first of the messages with this text that no row names."""
    sign = sign_of(value)
    candidates = [] if sign is None else free.get(sign, [])
    while candidates:
        message = candidates.pop()
        if message.id not in named:
            return message
    return None


def _keep_last(free: dict[Sign, list[Message]], messages: list[Any]) -> None:
    """Leave of messages with one text as many as a compaction kept, which are the last."""
    kept = Counter(sign for one in messages if (sign := sign_of(one)) is not None)
    for sign, candidates in free.items():
        del candidates[kept[sign] :]
