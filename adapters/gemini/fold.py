"""Logs of newer clients folded into messages, as the client does when it resumes."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import orjson

from agentsdir.adapters.gemini.shapes import (
    CALL_STATUSES,
    MESSAGE_TYPES,
    NONE,
    ChatMessage,
    FoldedCall,
    Names,
    answer_parts,
    bare_call_id,
    content_id,
    content_of,
    dict_of,
    entries_of,
    list_of,
    lone_answer,
    message_usage,
    output_weight,
    outputs_of,
    own_result,
    part_kind,
    parts_of,
    plain_text,
    response_output,
    result_weight,
    role_of,
    spawn_of,
    split_thought,
    text_of,
    thought_text,
    unknown_part,
)
from agentsdir.adapters.gemini.speakers import (
    GIVEN_ANSWER,
    GIVEN_THOUGHT,
    SentPrompt,
    continues_by_itself,
    is_snapshot,
    speaker_of,
)
from agentsdir.formats.findings import Drifts
from agentsdir.formats.ids import lasting_stand_in
from agentsdir.formats.jsontext import packed, unpacked
from agentsdir.formats.rows import NOTHING, salvage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agentsdir.adapters.gemini.shapes import Part, RowRef
    from agentsdir.formats import blocks
    from agentsdir.formats.blocks import BlockSource
    from agentsdir.formats.rows import Row


# The index: the parts of each message, and the row with the richest version of each part.
#
# A log repeats itself: a message is appended again as it grows, and every resume restates all
# messages with less detail. So a message is split into its parts (texts, thoughts, calls, results),
# which their content identifies, and the index keeps the row of the best version of each. `emit`
# reads those rows again to write the blocks.

_SAID = ("text", "thought")
_FINAL = ("success", "error", "cancelled")


class MessageIndex:
    """What the blocks of one transcript are made from, with few bytes per row.

    Two collections grow until their reader empties them: `new_messages`, and `touched`, which has
    the ids of changed messages: True for new content, False where a message only became live or is
    no longer live.

    Args:
        file: the file's name in findings of unknown kinds.
    """

    def __init__(self, file: str = "") -> None:
        self._file = file
        # Unknown kinds of rows, messages and parts.
        self.drifts = Drifts()
        self.new_messages: list[ChatMessage] = []
        self.touched: dict[str, bool] = {}
        self.line, self.offset, self.length = array("q"), array("q"), array("q")
        self.lossy: dict[int, tuple[str, ...]] = {}
        # Rows of a damaged line, which is counted already.
        self.salvaged: set[int] = set()
        self.messages: dict[str, ChatMessage] = {}
        # The number of messages ever, and those that were dropped because they restate others.
        self._count = 0
        self.dropped: list[ChatMessage] = []
        # Signatures of dropped messages, those of an earlier reading included.
        self.dropped_signatures: set[Signature] = set()
        # Call id (bare) → the call and the message that made it last.
        self.calls: dict[str, tuple[ChatMessage, FoldedCall]] = {}
        # For ids that several messages used, all these messages in order: some providers number
        # the calls of each round from the start.
        self.makers: dict[str, list[ChatMessage]] = {}
        # Messages with results that came before their call.
        self.orphaned: list[ChatMessage] = []
        # Prompts that may be the client's, by message: their row, and why.
        self.doubts: dict[str, tuple[RowRef, str]] = {}
        self._repeats: dict[str, int] = {}
        self._sent_prompt = SentPrompt()
        # The results of the last message's calls, if each is one part.
        self._answers: list[Part] | None = None
        # The last message and its version: the next version repeats most of it.
        self._newest: tuple[ChatMessage | None, dict[str, Any]] = (None, NONE)

    def __len__(self) -> int:
        """Return how many rows were added."""
        return len(self.line)

    def add_row(self, row: Row) -> int:
        """Keep the offset of a row; return its number."""
        number = len(self.line)
        _, line, offset, length, _, salvaged, lossy = row
        self.line.append(line)
        self.offset.append(offset)
        self.length.append(length)
        if salvaged:
            self.salvaged.add(number)
        if lossy:
            self.lossy[number] = lossy
        return number

    def touch(self, message_id: str) -> None:
        """Note that a message has new content."""
        self.touched[message_id] = True

    def move(self, message_ids: Iterable[str]) -> None:
        """Note that messages became live, or are no longer live."""
        for message_id in message_ids:
            self.touched.setdefault(message_id, False)

    def note(self, what: str, name: Any, number: int) -> None:
        """Count something of an unknown kind."""
        source: BlockSource = {
            "file": self._file,
            "line": self.line[number],
            "offset": self.offset[number],
            "length": self.length[number],
        }
        self.drifts.note(what, text_of(name) or "without type", source, None)

    def _add_extra(
        self, message: ChatMessage, part: Any, place: RowRef, at: int, field: str = "content"
    ) -> None:
        """Keep an unread part of a message for a hidden block, and count an unknown kind."""
        if message.add_extra(part, place, at, field):
            self.touch(message.id)
            owner = "answer" if message.role == "model" else "prompt"
            if field != "content":
                self.note(f"{field} entry", type(part).__name__, place[0])
            elif name := unknown_part(part):
                self.note(f"{owner} part", name, place[0])

    def add_unknown(self, value: Any, number: int, at: int = -1) -> None:
        """Keep a row (or the list entry `at` of one) that is no message, for a hidden block."""
        what = "row" if at < 0 else "message"
        kind = value.get("type") if isinstance(value, dict) else type(value).__name__
        self.note(what, kind, number)
        self._keep(content_id(value), "unknown", (number, at))

    def add_record(self, value: dict[str, Any], number: int) -> None:
        """Keep a row that only changes the session's data, for a hidden block."""
        self._keep(content_id(value), "record", (number, -1))

    def _keep(self, name: str, role: str, place: RowRef) -> None:
        count = self._repeats[name] = self._repeats.get(name, 0) + 1
        unique = f"{name}:row" if count == 1 else f"{name}:row.{count}"
        self._begin(ChatMessage(unique, role, place, None))

    def _begin(self, message: ChatMessage) -> None:
        message.number = self._count
        self._count += 1
        self.messages[message.id] = message
        self.new_messages.append(message)
        self.touched[message.id] = True

    def drop(self, message: ChatMessage) -> None:
        """Forget a message that only restates others."""
        del self.messages[message.id]
        self.dropped.append(message)
        self.dropped_signatures.update((message.role, text) for text in message.texts)
        self.touched.pop(message.id, None)
        self.doubts.pop(message.id, None)
        if message.orphans is not None:
            self.orphaned.remove(message)

    def see(self, value: dict[str, Any], message_id: str, place: RowRef) -> ChatMessage:
        """Add one version of a message."""
        message = self.messages.get(message_id)
        before = None
        if message is None:
            message = ChatMessage(message_id, role_of(value), place, value.get("timestamp"))
            self._begin(message)
            if value.get("type") not in MESSAGE_TYPES:
                self.note("message", value.get("type"), place[0])
        else:
            newest, version = self._newest
            if message is newest:
                before = version
            if message.timestamp is None and value.get("timestamp") is not None:
                message.timestamp = value["timestamp"]
                self.touch(message_id)
        role = message.role
        if role == "model":
            self._see_model(message, value, place, before)
        elif role == "user":
            self._see_user(message, value, place)
        else:
            text = plain_text(content_of(value))
            if message.add_text(lasting_stand_in(text), len(text), place):
                self.touch(message_id)
        self._newest = message, value
        return message

    def settle_orphans(self) -> None:
        """Give results that came before their call to the call."""
        for message in self.orphaned:
            left = {}
            for bare, (place, at) in (message.orphans or {}).items():
                owner = self.calls.get(bare)
                if owner is None:
                    left[bare] = place, at
                    continue
                self.touch(message.id)
                if owner[1].offer_answer(1, place, ("content", at)):
                    self.touch(owner[0].id)
            message.orphans = left

    def snapshot(self) -> dict[str, Any] | None:
        """Return as JSON what further rows need of the rows so far, before `settle_orphans`.

        None where that is much or unusual: the results of the last calls, which the next row may
        repeat; and calls of a message that was dropped.
        """
        messages = self.messages
        makers = [*((message,) for message, _ in self.calls.values()), *self.makers.values()]
        if self._answers or any(messages.get(one.id) is not one for made in makers for one in made):
            return None
        return {
            "line": packed("I", self.line),
            "offset": packed("q", self.offset),
            "length": packed("I", self.length),
            "lossy": [*self.lossy.items()],
            "messages": [message.snapshot() for message in messages.values()],
            "makers": [
                (bare, [maker.id for maker in made], self.calls[bare][0].id)
                for bare, made in self.makers.items()
            ],
            "orphaned": [message.id for message in self.orphaned],
            "dropped": sorted(self.dropped_signatures),
            "repeats": self._repeats,
            "sentPrompt": [*self._sent_prompt],
        }

    def resume(self, snapshot: dict[str, Any]) -> None:
        """Take the rows of a snapshot, none of which count as new.

        Raises `ValueError`, `TypeError` or `KeyError` for what is none.
        """
        self.line = array("q", unpacked("I", snapshot["line"]))
        self.offset = unpacked("q", snapshot["offset"])
        self.length = array("q", unpacked("I", snapshot["length"]))
        rows = range(len(self.line))
        self.lossy = {number: tuple(lossy) for number, lossy in snapshot["lossy"]}
        for number, kept in enumerate(snapshot["messages"]):
            message = ChatMessage.of(kept)
            message.number = number
            self.messages[message.id] = message
            if any(row not in rows for row, _ in message.places()):
                raise ValueError("no rows of this log")
            for bare, call in message.calls.items():
                self.calls[bare] = message, call
        self._count = len(self.messages)
        for bare, made, last in snapshot["makers"]:
            self.makers[bare] = [self.messages[name] for name in made]
            self.calls[bare] = self.messages[last], self.messages[last].calls[bare]
        self.orphaned = [self.messages[name] for name in snapshot["orphaned"]]
        self.dropped_signatures = {(role, text) for role, text in snapshot["dropped"]}
        self._repeats = dict(snapshot["repeats"])
        self._sent_prompt = SentPrompt(*snapshot["sentPrompt"])

    def _see_user(self, message: ChatMessage, value: dict[str, Any], place: RowRef) -> None:
        # Without a call of `content_of`: this runs for each version of a message.
        content = value["content"] if "content" in value else content_of(value)
        if self._answers and content == self._answers and "displayContent" not in value:
            return  # the results of the last calls, repeated as the message to the model
        parts: list[Part] = [] if content == "" else parts_of(content)
        kinds = [part_kind(part) for part in parts]
        answers = "response" in kinds
        said: list[str] = []
        used: dict[str, int] = {}
        length = 0
        before = ""  # the kind of the last part that is no media
        for at, kind in enumerate(kinds):
            part = parts[at]
            before = before if kind == "media" else kind
            if kind in _SAID:
                said.append(part["text"])
                length += len(part["text"])
                speaker = speaker_of(part["text"], beside_result=answers)
                message.asks = message.asks or not speaker.form or speaker.typed is not None
                if speaker.doubt:
                    self.doubts[message.id] = place, speaker.doubt
            elif kind == "response":
                message.answers = True
                response = part["functionResponse"]
                own = bare_call_id(text_of(response.get("id")), text_of(response.get("name")))
                bare = _numbered(own, used)
                if bare not in self.calls:  # a repeated result
                    bare = own
                self._see_answer(message, bare, parts, place, at)
            elif kind == "media" and answers:
                # Media behind a result are a part of it.
                if before != "response":
                    self._add_extra(message, part, place, at)
            elif kind == "media":
                said.append(media_name(part))
                length += 1
            else:
                self._add_extra(message, part, place, at)
        shown = value.get("displayContent")
        if shown is not None:
            length += 1
            if self._sent_prompt.message != message.id:
                texts = [part["text"] for part in parts if part_kind(part) in _SAID]
                only = len(texts) == len(parts)
                continues, doubt = continues_by_itself(
                    texts, plain_text(shown), self._sent_prompt, only_texts=only
                )
                if continues:
                    message.continues, message.asks = True, False
                    self.doubts.pop(message.id, None)
                elif doubt:
                    self.doubts[message.id] = place, doubt
        if message.asks and not answers:
            sent = plain_text(content_of(value))
            self._sent_prompt = SentPrompt(
                message.id, sent if shown is None else plain_text(shown), sent
            )
        if said or shown is not None:
            signature = lasting_stand_in(tuple(said))
            if message.add_text(signature, length, place):
                self.touch(message.id)

    def _see_answer(
        self, message: ChatMessage, bare: str, parts: list[Part], place: RowRef, at: int
    ) -> None:
        owner = self.calls.get(bare)
        if owner is not None:
            result = answer_parts(parts, at)
            if owner[1].offer_answer(result_weight(result), place, ("content", at)):
                self.touch(owner[0].id)
        elif message.orphans is None:
            message.orphans = {bare: (place, at)}
            self.orphaned.append(message)
            self.touch(message.id)
        elif bare not in message.orphans:
            message.orphans[bare] = place, at
            self.touch(message.id)

    def was_recorded(self, bare: str) -> bool:
        """Tell whether the client recorded a call of this id; other mentions restate the record."""
        return bare in self.calls and self.calls[bare][1].spot[0] == "toolCalls"

    def is_over(self, bare: str) -> bool:
        """Tell whether an unrecorded call has its result, so that its id may be used again."""
        owner = self.calls.get(bare)
        return owner is not None and owner[1].answer is not None and not self.was_recorded(bare)

    def _see_model(
        self,
        message: ChatMessage,
        value: dict[str, Any],
        place: RowRef,
        before: dict[str, Any] | None,
    ) -> None:
        """Add a version; values equal to those of the version `before` are skipped."""
        # Without a call of `content_of`: this runs for each version of a message.
        content = value["content"] if "content" in value else content_of(value)
        if before is None or content != before.get("content", before.get("parts")):
            self._see_content(message, content, place)
        thoughts = value.get("thoughts")
        if thoughts and (before is None or thoughts != before.get("thoughts")):
            for at, thought in enumerate(entries_of(thoughts)):
                if type(thought) is dict:
                    text = thought_text(
                        text_of(thought.get("subject")), text_of(thought.get("description"))
                    )
                    self._see_thought(message, text, place, "thoughts", at)
                else:
                    self._add_extra(message, thought, place, at, "thoughts")
        calls = value.get("toolCalls")
        self._answers = []
        if calls:
            used: dict[str, int] = {}
            for at, call in enumerate(entries_of(calls)):
                if type(call) is dict:
                    self._see_call(message, call, place, ("toolCalls", at), used)
                else:
                    self._add_extra(message, call, place, at, "toolCalls")
        tokens = value.get("tokens")
        if type(tokens) is dict and tokens != message.tokens:
            used = message_usage(tokens)
            if message.usage is None or used["totalTokens"] > message.usage["totalTokens"]:
                message.usage, message.tokens = used, tokens
                self.touch(message.id)
        if message.model is None and isinstance(value.get("model"), str):
            message.model = value["model"]
            self.touch(message.id)

    def _see_content(self, message: ChatMessage, content: Any, place: RowRef) -> None:
        if isinstance(content, str):
            text = content
        else:
            text = ""
            used: dict[str, int] = {}
            for at, part in enumerate(parts_of(content)):
                kind = part_kind(part)
                if kind == "text":
                    text += part["text"]
                elif kind == "thought":
                    message.continues = message.continues or part["text"] == GIVEN_THOUGHT
                    text_of_thought = thought_text(*split_thought(part["text"]))
                    self._see_thought(message, text_of_thought, place, "content", at)
                elif kind == "call":
                    self._see_call(message, part["functionCall"], place, ("content", at), used)
                else:
                    self._add_extra(message, part, place, at)
        if text and message.add_text(lasting_stand_in(text.strip()), len(text), place):
            self.touched[message.id] = True

    def _see_thought(
        self, message: ChatMessage, text: str, place: RowRef, field: str, at: int
    ) -> None:
        if text:
            signature = lasting_stand_in(text)
            known = message.thoughts.get(signature)
            # An entry of the list has the thought's own time; a text part has none.
            if known is None or (known[1] == "content" and field == "thoughts"):
                if message.thoughts is NONE:
                    message.thoughts = {}
                message.thoughts[signature] = (place, field, at)
                self.touched[message.id] = True

    def _see_call(
        self,
        message: ChatMessage,
        record: dict[str, Any],
        place: RowRef,
        spot: tuple[str, int],
        used: dict[str, int],
    ) -> None:
        get = record.get
        name = text_of(get("name"))
        call_id = text_of(get("id")) or f"{name}.{spot[1]}"
        bare = _numbered(bare_call_id(call_id, name), used)
        call = message.calls.get(bare)
        if call is None:
            if spot[0] == "content" and self.was_recorded(bare):
                return  # another message made this call; here a resume restates it
            if message.calls is NONE:
                message.calls = {}
            call = message.calls[bare] = FoldedCall(call_id, name)
            if bare in self.calls:
                self.makers.setdefault(bare, [self.calls[bare][0]]).append(message)
            self.calls[bare] = (message, call)
        elif bare in self.makers:  # results that follow are this call's again
            self.calls[bare] = (message, call)
        if spot[0] == "content":
            if call.offer(0, place, spot):
                self.touch(message.id)
            return
        result: Any = get("result")
        answer = lone_answer(result)
        if answer is None:
            weight, outputs = result_weight(own_result(result, bare)), outputs_of(result)
        else:
            outputs = [response_output(answer.get("response"))]
            weight = output_weight(outputs[0])
        if self._answers is not None:
            # Their results are repeated as one message: without the one of a restated call.
            if (
                answer is not None
                and answer.get("id") == call_id
                and answer.get("name") == name
                and self.calls[bare][1] is call
            ):
                self._answers.append(result[0])
            else:
                self._answers = None
        spawn = spawn_of(record, name, outputs)
        status = get("status")
        final = status in _FINAL
        richer = call.offer(1 + final * 2 + (get("resultDisplay") is not None), place, spot)
        if richer and not final and status is not None and text_of(status) not in CALL_STATUSES:
            self.note("status", status, place[0])
        if call.offer_answer(weight, place, spot) or richer or spawn != call.spawn:
            self.touched[message.id] = True
        call.spawn = spawn


def _numbered(bare: str, used: dict[str, int]) -> str:
    """Return the bare id of a call or a result, numbered where its message uses it again.

    Args:
        bare: the id.
        used: the number of uses of each id in the message so far.
    """
    number = used[bare] = used.get(bare, 0) + 1
    return bare if number == 1 else f"{bare}~{number}"


# The row cache: rows by number, read again from the file where they are not kept.

# The limits of decoded rows that are kept: their number, and their bytes.
MAX_CACHED_ROWS = 8
MAX_CACHED_BYTES = 32 * 1024 * 1024


class NotAvailableYet(Exception):
    """A block needs a row or a file that is only available after the first read."""


class RowCache:
    """Rows of one transcript by number. The last ones are kept decoded; others are read again.

    Args:
        stream: the transcript's bytes, seekable; None during the first read.
        file: the file's name in blocks.
        index: the offset of each row.
    """

    def __init__(self, stream: BinaryIO | None, file: str, index: MessageIndex) -> None:
        self._stream = stream
        self._file = file
        self._index = index
        # Decoded rows; during the first read, the reader puts each into it.
        self.kept: dict[int, Any] = {}

    def release(self) -> None:
        """Drop all rows but the one that was put in last."""
        last, value = self.kept.popitem()
        self.kept.clear()
        self.kept[last] = value

    def read_from(self, stream: BinaryIO) -> None:
        """Use `row` to read rows again from here on."""
        self._stream = stream
        self.kept.clear()

    def row(self, number: int) -> Any:
        """Return the value of a row; None if the file has changed meanwhile.

        Raises `NotAvailableYet` during the first read for a row that is not kept.
        """
        if number in self.kept:
            return self.kept[number]
        if self._stream is None:
            raise NotAvailableYet
        self._stream.seek(self._index.offset[number])
        data = self._stream.read(self._index.length[number])
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            found = salvage(data).values
            value = found[0][0] if found else None
        self.kept[number] = value
        self._make_room(number)
        return value

    def _make_room(self, number: int) -> None:
        """Drop rows beyond the limits, the shortest first, which are the cheapest to read again."""
        kept, length = self.kept, self._index.length
        while len(kept) > 1 and (
            len(kept) > MAX_CACHED_ROWS or sum(length[one] for one in kept) > MAX_CACHED_BYTES
        ):
            del kept[min((one for one in kept if one != number), key=length.__getitem__)]

    def entry(self, place: RowRef) -> Any:
        """Return a row, or an entry of the row's message list."""
        number, at = place
        value = self.row(number)
        if at < 0:
            return value
        row = dict_of(value)
        messages = list_of(dict_of(row.get("$set", row)).get("messages"))
        return messages[at] if at < len(messages) else None

    def message(self, place: RowRef) -> dict[str, Any]:
        """Return a message by its row; empty if it is gone."""
        number, at = place
        value = self.kept.get(number) if at < 0 else None
        return value if type(value) is dict else dict_of(self.entry(place))

    def source(self, place: RowRef) -> blocks.BlockSource:
        """Return the `source` of a block made from that row."""
        number, index = place[0], self._index
        return {
            "file": self._file,
            "line": index.line[number],
            "offset": index.offset[number],
            "length": index.length[number],
        }


# The row decoder: duplicate rows, and rows without content, are not decoded.
#
# Half of a log's bytes are the results of a message's calls, repeated as a message to the model. So
# the repetition is compared with the first as bytes. Half of a log's rows hold only a time.

# A turn of results behind its id, time and type; and the most bytes that these have.
_CONTENT = b'"content":[{"functionResponse":'
_BEGINNING = 512
_END = b"}\n"
# What the client writes behind each row. The time is not used.
_TIME = re.compile(rb'\{"\$set":\{"lastUpdated":"[0-9T:.Z-]*"\}\}\n').fullmatch
_TIME_LENGTH = 64


class RowDecoder:
    """Decodes the rows of a log, in their order.

    Args:
        skips: return `NOTHING` for rows that only hold a time.
    """

    def __init__(self, *, skips: bool = True) -> None:
        self._skips = skips
        # The results of the last row's calls.
        self._given: list[Any] = []

    def decode(self, data: bytes) -> Any:
        """Return the value of a row, or `NOTHING`. Raises `JSONDecodeError`."""
        if len(data) < _TIME_LENGTH and self._skips and _TIME(data):
            return NOTHING
        if self._given:
            begin = data.find(_CONTENT, 0, _BEGINNING)
            if begin > 0:
                given, self._given = self._given, []
                # The same bytes mean the same value.
                at, repeated = begin + len(b'"content":'), orjson.dumps(given)
                if data.startswith(repeated, at) and data[at + len(repeated) :] == _END:
                    value = orjson.loads(data[:begin] + b'"content":null}')
                    value["content"] = given
                    return value
        value = orjson.loads(data)
        if type(value) is dict and "toolCalls" in value:
            self._given = _given(value["toolCalls"])
        return value


def _given(calls: Any) -> list[Any]:
    if not isinstance(calls, list):
        return []
    results = [call.get("result") for call in calls if isinstance(call, dict)]
    return [part for result in results if isinstance(result, list) for part in result]


# Restatements: rows that write the history again, matched with the messages that they restate.
#
# A declined tool, ``/chat resume`` and ``/restore`` append each kept message under a new id, with
# turns of one role joined. Such a row does not name the message; its parts identify it.

# The role of a message, and the hash of its texts as `ChatMessage.texts` has it.
Signature: TypeAlias = "tuple[str, int]"


def media_name(part: Part) -> str:
    """Return a short text that stands for a part with media."""
    media = dict_of(part.get("inlineData") or part.get("fileData"))
    data = text_of(media.get("data")) or text_of(media.get("fileUri"))
    return f"\0{lasting_stand_in(data)}"


def said_in(parts: list[Part]) -> list[str]:
    """Return the texts, and the names of media, that identify a user turn, in order."""
    answers = any(part_kind(part) == "response" for part in parts)
    said: list[str] = []
    for part in parts:
        kind = part_kind(part)
        if kind in ("text", "thought"):
            said.append(part["text"])
        elif kind == "media" and not answers:  # media behind a result are a part of it
            said.append(media_name(part))
    return said


def signature_of(value: Any) -> Signature | None:
    """Return the signature of a message; None for one without text."""
    if not isinstance(value, dict):
        return None
    role, content = role_of(value), content_of(value)
    if role == "user":
        said = said_in(parts_of(content))
        return (role, lasting_stand_in(tuple(said))) if said else None
    text = plain_text(content).strip()
    return (role, lasting_stand_in(text)) if text else None


def by_text(messages: Iterable[ChatMessage]) -> dict[Signature, list[ChatMessage]]:
    """Return messages by signature, the last first: `pop` takes the earliest."""
    found: dict[Signature, list[ChatMessage]] = {}
    for message in messages:
        for signature in message.texts:
            found.setdefault((message.role, signature), []).append(message)
    for same in found.values():
        same.reverse()
    return found


def splits(said: list[str], is_there: Callable[[Signature], bool]) -> list[Signature] | None:
    """Split a user turn into existing turns, the longest first; None if that is not possible.

    Args:
        said: the content of the turn (`said_in`).
        is_there: returns whether there is a turn with this signature.
    """
    signatures: list[Signature] = []
    at = 0
    while at < len(said):
        for end in range(len(said), at, -1):
            signature = "user", lasting_stand_in(tuple(said[at:end]))
            if is_there(signature):
                signatures.append(signature)
                at = end
                break
        else:
            return None
    return signatures


def only_restates(value: dict[str, Any], signatures: set[Signature]) -> bool:
    """Tell whether all content of a message is in messages with these signatures."""
    if role_of(value) != "user":
        return signature_of(value) in signatures
    return splits(said_in(parts_of(content_of(value))), signatures.__contains__) is not None


class Restatements:
    """The messages that a rewritten history may restate, each once.

    Args:
        index: has the calls.
        messages: the earlier messages, live ones first.
    """

    def __init__(self, index: MessageIndex, messages: list[ChatMessage]) -> None:
        self._calls = index.calls
        self._free = by_text(messages)
        # The turn of results behind each message with calls.
        self._results: dict[str, ChatMessage] = {}
        before = None
        for message in messages:
            if message.role == "model":
                before = message
            elif message.role == "user" and before is not None:
                if before.calls:
                    self._results.setdefault(before.id, message)
                before = None

    def by(self, value: dict[str, Any]) -> list[str]:
        """Return the ids of the messages that a row restates, in order; none for a new one."""
        if role_of(value) != "user":
            signature = signature_of(value)
            return (
                [self._free[signature].pop().id]
                if signature is not None and self._has(signature)
                else []
            )
        parts = parts_of(content_of(value))
        signatures = splits(said_in(parts), self._has)
        if signatures is None:
            return []
        found = self._answers(parts)
        for signature in signatures:
            if not self._has(signature):  # one text twice, of which there was one
                return []
            found.append(self._free[signature].pop().id)
        return list(dict.fromkeys(found))

    def _has(self, signature: Signature) -> bool:
        return bool(self._free.get(signature))

    def _answers(self, parts: list[Part]) -> list[str]:
        """Return the turn with the results among these parts, if it is known."""
        for part in parts:
            if part_kind(part) == "response":
                response = part["functionResponse"]
                name, call_id = text_of(response.get("name")), text_of(response.get("id"))
                owner = self._calls.get(bare_call_id(call_id, name))
                turn = None if owner is None else self._results.get(owner[0].id)
                if turn is not None:
                    return [turn.id]
        return []


# The fold: the rows of a log, applied as the client applies them when it resumes.
#
# Each row is one of: ``$rewindTo``, a message (an ``id``), ``$set``, a header, tested in this order
# as in the client. A message that the fold drops stays in the index; it is only no longer live.

# The keys of a session's data in a header.
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
    """Folds the rows of one transcript; `live` has the ids that a resume would load, in order.

    `header` is the merged session metadata. `session_id` is the first one: it must not change while
    a file is tailed. `amending` counts the rows that change earlier ones, by reason.

    Args:
        file: the file's name in findings of unknown kinds.
        hidden: keep the rows that change earlier ones, for hidden blocks.
    """

    def __init__(self, file: str = "", *, hidden: bool = False) -> None:
        self.index = MessageIndex(file)
        self.amending: Counter[str] = Counter()
        self._keeps = hidden
        self.header: dict[str, Any] = {}
        self.live: dict[str, None] = {}
        self.session_id = ""
        # Ids for messages of a document without ids.
        self._names = Names()
        # What a rewind dropped, live again or not.
        self._rewound: set[str] = set()
        # What a compaction removed from the model's context: history, which stays live.
        self.history: dict[str, None] = {}
        # The summaries of compactions, which keep the place where they were written.
        self.summaries: set[str] = set()
        # New ids of restated messages → their older ids; and the new ids of several joined
        # messages.
        self._alias: dict[str, str] = {}
        self._merged: dict[str, list[str]] = {}

    def take(self, row: Row) -> None:
        """Fold one row of a log."""
        index, value = self.index, row.value
        number = index.add_row(row)
        # `in` is cheaper than `get`, and this runs for every row.
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

    def snapshot(self) -> dict[str, Any] | None:
        """Return as JSON what further rows of a main log need; None as `MessageIndex.snapshot`."""
        index = self.index.snapshot()
        numbers = {name: number for number, name in enumerate(self.index.messages)}
        named = [self.live.keys(), self.history.keys(), self._rewound, self.summaries]
        if index is None or not (self.session_id and all(map(numbers.keys().__ge__, named))):
            return None
        live, history, rewound, summaries = ([numbers[name] for name in names] for names in named)
        return {
            "index": index,
            "sessionId": self.session_id,
            "live": packed("I", live),
            "history": packed("I", history),
            "rewound": packed("I", sorted(rewound)),
            "summaries": packed("I", sorted(summaries)),
            "alias": self._alias,
            "merged": self._merged,
        }

    def resume(self, snapshot: dict[str, Any]) -> None:
        """Take the rows of a snapshot.

        Raises `ValueError`, `TypeError`, `KeyError` or `IndexError` for what is none.
        """
        self.index.resume(snapshot["index"])
        names = [*self.index.messages]

        def named(key: str) -> Iterator[str]:
            return (names[number] for number in unpacked("I", snapshot[key]))

        self.session_id = snapshot["sessionId"]
        self.live = dict.fromkeys(named("live"))
        self.history = dict.fromkeys(named("history"))
        self._rewound = set(named("rewound"))
        self.summaries = set(named("summaries"))
        self._alias = dict(snapshot["alias"])
        self._merged = {name: [*known] for name, known in snapshot["merged"].items()}

    def is_live(self, message: ChatMessage) -> bool:
        """Tell whether a resume would load a message; rows that are no message are always live."""
        name = message.id
        return name in self.live or name in self.history or message.role in ("unknown", "record")

    def left_by(self, message: ChatMessage) -> str:
        """Return why a message is not live: a rewind dropped it, or a list left it out."""
        return "rewind" if message.id in self._rewound else "replaced"

    def _insert(self, value: dict[str, Any], message_id: str, place: tuple[int, int]) -> None:
        index = self.index
        if self._alias:
            if message_id in self._merged:
                return
            message_id = self._alias.get(message_id, message_id)
        if message_id not in index.messages:
            # Masking and resuming write all messages again, each under a new id.
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
            self._take_restated_rows(messages)
            before, self.live = self.live, {}
            compacts = any(self._is_new_snapshot(value) for value in messages)
            self._insert_all(messages, number, before, compacts=compacts)
            if compacts:
                self.history.update((one, None) for one in before if one not in self.live)
                self.summaries.update(one for one in self.live if one not in before)
                self._note_given_answer(messages)
            self.index.move(message_id for message_id in before if message_id not in self.live)
            self.index.move(message_id for message_id in self.live if message_id not in before)

    def _take_restated_rows(self, messages: list[Any]) -> None:
        """Drop new messages that only restate earlier ones, and keep their ids as aliases.

        A declined tool, ``/chat resume`` and ``/restore`` append each kept message under a new id,
        turns of one role joined, and then write a list of these. Such a list has only the last
        messages, none of which has counts.
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
        restating = [index.messages[message_id] for message_id in fresh]
        if any(message.usage is not None for message in restating):
            return
        for message in restating:
            del self.live[message.id]
        left = (one for one in index.messages if one not in self.live and one not in fresh)
        known_before = [index.messages[one] for one in (*self.live, *left)]
        restated = Restatements(index, known_before)
        for message in restating:
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
        # Messages whose id is not in the list may be in it under another id.
        replaced = before or {}
        named: set[str] = set()
        for value in messages:
            if isinstance(value, dict) and isinstance(message_id := value.get("id"), str):
                named.update(self._known_as(message_id))
        free: dict[Signature, list[ChatMessage]] | None = None
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
                if before is None:  # it may have been dropped earlier
                    self.index.touched.setdefault(message_id, False)

    def _same_call(
        self, value: dict[str, Any], taken: Any, *, alone: bool = False
    ) -> ChatMessage | None:
        """Find the message whose call `value` restates, unless it is in `taken`.

        Args:
            value: the message, with calls as parts.
            taken: the ids of messages that are named themselves.
            alone: whether the message is a row of its own, in no list.
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
        """Return the ids of the messages behind an id: several for turns that were joined."""
        return self._merged.get(message_id) or (self._alias.get(message_id, message_id),)

    def _is_new_snapshot(self, value: Any) -> bool:
        """Tell whether a message is a new snapshot of /compress."""
        if not isinstance(value, dict) or role_of(value) != "user":
            return False
        message_id = _id_of(value)
        if self._alias.get(message_id, message_id) in self.index.messages:
            return False
        return is_snapshot(plain_text(content_of(value)))

    def _note_given_answer(self, messages: list[Any]) -> None:
        """Note the client's own answer to the snapshot."""
        for value in messages:
            if isinstance(value, dict) and plain_text(content_of(value)) == GIVEN_ANSWER:
                message = self.index.messages.get(_id_of(value))
                if message is not None and message.role == "model":
                    message.continues = True
                    self.index.touch(message.id)

    def _rewind(self, target: str) -> None:
        """Drop a message and all after it; an unknown id drops everything."""
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
    value: dict[str, Any], free: dict[Signature, list[ChatMessage]], named: set[str]
) -> ChatMessage | None:
    """Return the first message with this text that is not named."""
    signature = signature_of(value)
    candidates = [] if signature is None else free.get(signature, [])
    while candidates:
        message = candidates.pop()
        if message.id not in named:
            return message
    return None


def _keep_last(free: dict[Signature, list[ChatMessage]], messages: list[Any]) -> None:
    """Keep as many messages of each text as a compaction kept: the last ones."""
    kept = Counter(signature for one in messages if (signature := signature_of(one)) is not None)
    for signature, candidates in free.items():
        del candidates[kept[signature] :]
