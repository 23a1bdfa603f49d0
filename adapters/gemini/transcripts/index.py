"""What each message says, and in which row its richest version stands.

A log repeats itself: a message is appended again as it grows, and every resume restates all of
them, poorer. So a message is taken apart into what it says (texts, thoughts, calls, results),
each told apart by its content, and for each only the place of the best version is kept. What
writes the blocks (`emit`) goes back to those places.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.gemini.transcripts.messages import NONE, Call, Message
from agentsdir.adapters.gemini.transcripts.shapes import (
    CALL_STATUSES,
    MESSAGE_TYPES,
    answer_parts,
    bare_call_id,
    content_id,
    content_of,
    dict_of,
    entries_of,
    own_result,
    part_kind,
    parts_of,
    plain_text,
    result_weight,
    role_of,
    split_thought,
    text_of,
    thought_text,
    unknown_part,
)
from agentsdir.adapters.gemini.transcripts.spawns import spawn_of
from agentsdir.adapters.gemini.transcripts.speakers import (
    GIVEN_THOUGHT,
    Asked,
    goes_on,
    speaker_of,
)
from agentsdir.adapters.gemini.transcripts.tokens import message_usage
from agentsdir.formats.reading.drift import Drifts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.adapters.gemini.transcripts.messages import Place
    from agentsdir.adapters.gemini.transcripts.shapes import (
        Part,
    )
    from agentsdir.formats.reading.blocks import BlockSource
    from agentsdir.formats.reading.rows import Row

_SAID = ("text", "thought")


class Index:
    """Everything that the blocks of one transcript are made by, small per row.

    `begun` has the messages that were new, and `touched` the ids of those that say something new
    (or, False, are merely live or no longer so), since whoever reads them last emptied them.

    Args:
        file: the name for the places of what is not known.
    """

    def __init__(self, file: str = "") -> None:
        self._file = file
        # Kinds of rows, messages and parts that are not known.
        self.drifts = Drifts()
        self.begun: list[Message] = []
        self.touched: dict[str, bool] = {}
        self.line, self.offset, self.length = array("q"), array("q"), array("q")
        self.lossy: dict[int, tuple[str, ...]] = {}
        # Rows that stood on a damaged line, which is counted already.
        self.salvaged: set[int] = set()
        self.messages: dict[str, Message] = {}
        # How many there were, and those that turned out to only restate others.
        self._count = 0
        self.dropped: list[Message] = []
        # Call id (bare) → the call and the message that made it last.
        self.calls: dict[str, tuple[Message, Call]] = {}
        # Of ids that several messages used, all of these, in order: some providers number the
        # calls of each round anew.
        self.makers: dict[str, list[Message]] = {}
        # Messages with results whose call was not there when they came.
        self.orphaned: list[Message] = []
        # Prompts that may be the client's, by message: where they stand, and why.
        self.doubts: dict[str, tuple[Place, str]] = {}
        self._repeats: dict[str, int] = {}
        self._asked = Asked()
        # What the calls of the message that was seen last gave, where each gave one part.
        self._answers: list[Part] | None = None
        # The message that was seen last and its version then: the next one repeats most of it.
        self._newest: tuple[Message | None, dict[str, Any]] = (None, NONE)

    def __len__(self) -> int:
        """Return how many rows were added."""
        return len(self.line)

    def add_row(self, row: Row) -> int:
        """Note where a row stands; return its number."""
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
        """Note that a message is not what it was."""
        self.touched[message_id] = True

    def move(self, message_ids: Iterable[str]) -> None:
        """Note that messages became live, or are no longer so."""
        for message_id in message_ids:
            self.touched.setdefault(message_id, False)

    def note(self, what: str, name: Any, number: int) -> None:
        """Count something in a row that is of no known kind."""
        source: BlockSource = {
            "file": self._file,
            "line": self.line[number],
            "offset": self.offset[number],
            "length": self.length[number],
        }
        self.drifts.note(what, text_of(name) or "without type", source, None)

    def _add_extra(
        self, message: Message, part: Any, place: Place, at: int, field: str = "content"
    ) -> None:
        """Keep something in a message that is not read, for a hidden block, and name it."""
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
        """Keep a row that only changes what is known of the session, for a hidden block."""
        self._keep(content_id(value), "record", (number, -1))

    def _keep(self, name: str, role: str, place: Place) -> None:
        count = self._repeats[name] = self._repeats.get(name, 0) + 1
        unique = f"{name}:row" if count == 1 else f"{name}:row.{count}"
        self._begin(Message(unique, role, place, None))

    def _begin(self, message: Message) -> None:
        message.number = self._count
        self._count += 1
        self.messages[message.id] = message
        self.begun.append(message)
        self.touched[message.id] = True

    def drop(self, message: Message) -> None:
        """Forget a message that only restates others."""
        del self.messages[message.id]
        self.dropped.append(message)
        self.touched.pop(message.id, None)
        self.doubts.pop(message.id, None)
        if message.orphans is not None:
            self.orphaned.remove(message)

    def see(self, value: dict[str, Any], message_id: str, place: Place) -> Message:
        """Take in one version of a message."""
        message = self.messages.get(message_id)
        before = None
        if message is None:
            message = Message(message_id, role_of(value), place, value.get("timestamp"))
            self._begin(message)
            if value.get("type") not in MESSAGE_TYPES:
                self.note("message", value.get("type"), place[0])
        else:
            if message is self._newest[0]:
                before = self._newest[1]
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
            if message.add_text(hash(text), len(text), place):
                self.touch(message_id)
        self._newest = message, value
        return message

    def settle_orphans(self) -> None:
        """Give results that came before their call to it, now that all calls are known."""
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

    def _see_user(self, message: Message, value: dict[str, Any], place: Place) -> None:
        # Spelled out, for this runs for each version of a message.
        content = value["content"] if "content" in value else content_of(value)
        if self._answers and content == self._answers and "displayContent" not in value:
            return  # as every log does, what the calls gave is told again to the model
        parts: list[Part] = [] if content == "" else parts_of(content)
        kinds = [part_kind(part) for part in parts]
        answers = "response" in kinds
        said: list[Any] = []
        used: dict[str, int] = {}
        length = 0
        before = ""  # of what kind the last part was that is no media
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
                bare = _numbered(part["functionResponse"], "", used)
                if bare not in self.calls:  # a result that stands twice
                    bare = _numbered(part["functionResponse"], "", {})
                self._see_answer(message, bare, parts, place, at)
            elif kind == "media" and answers:
                # What follows a result is a part of it.
                if before != "response":
                    self._add_extra(message, part, place, at)
            elif kind == "media":
                media = dict_of(part.get("inlineData") or part.get("fileData"))
                said.append(hash(text_of(media.get("data")) or text_of(media.get("fileUri"))))
                length += 1
            else:
                self._add_extra(message, part, place, at)
        shown = value.get("displayContent")
        if shown is not None:
            length += 1
            if self._asked.message != message.id:
                texts = [part["text"] for part in parts if part_kind(part) in _SAID]
                only = len(texts) == len(parts)
                continues, doubt = goes_on(texts, plain_text(shown), self._asked, only_texts=only)
                if continues:
                    message.continues, message.asks = True, False
                    self.doubts.pop(message.id, None)
                elif doubt:
                    self.doubts[message.id] = place, doubt
        if message.asks and not answers:
            sent = plain_text(content_of(value))
            self._asked = Asked(message.id, sent if shown is None else plain_text(shown), sent)
        if said or shown is not None:
            sign = hash(tuple(said))
            if message.add_text(sign, length, place):
                self.touch(message.id)

    def _see_answer(
        self, message: Message, bare: str, parts: list[Part], place: Place, at: int
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
        """Tell whether the client recorded a call of an id: other mentions of it restate that."""
        return bare in self.calls and self.calls[bare][1].spot[0] == "toolCalls"

    def is_over(self, bare: str) -> bool:
        """Tell whether an id's call has its result: in no other record, it may be used again."""
        owner = self.calls.get(bare)
        return owner is not None and owner[1].answer is not None and not self.was_recorded(bare)

    def _see_model(
        self, message: Message, value: dict[str, Any], place: Place, before: dict[str, Any] | None
    ) -> None:
        """Take in a version; what is as it was `before` is known."""
        # Spelled out, for this runs for each version of a message.
        content = value["content"] if "content" in value else content_of(value)
        if before is None or content != before.get("content", before.get("parts")):
            self._see_content(message, content, place)
        thoughts = value.get("thoughts")
        if thoughts and (before is None or thoughts != before.get("thoughts")):
            for at, thought in enumerate(entries_of(thoughts)):
                if isinstance(thought, dict):
                    subject, said = thought.get("subject"), thought.get("description")
                    self._see_thought(
                        message, text_of(subject), text_of(said), place, "thoughts", at
                    )
                else:
                    self._add_extra(message, thought, place, at, "thoughts")
        calls = value.get("toolCalls")
        self._answers = []
        if calls:
            used: dict[str, int] = {}
            for at, call in enumerate(entries_of(calls)):
                if isinstance(call, dict):
                    self._see_call(message, call, place, ("toolCalls", at), used)
                else:
                    self._add_extra(message, call, place, at, "toolCalls")
        tokens = value.get("tokens")
        if isinstance(tokens, dict) and tokens != message.tokens:
            used = message_usage(tokens)
            if message.usage is None or used["totalTokens"] > message.usage["totalTokens"]:
                message.usage, message.tokens = used, tokens
                self.touch(message.id)
        if message.model is None and isinstance(value.get("model"), str):
            message.model = value["model"]
            self.touch(message.id)

    def _see_content(self, message: Message, content: Any, place: Place) -> None:
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
                    self._see_thought(message, *split_thought(part["text"]), place, "content", at)
                elif kind == "call":
                    self._see_call(message, part["functionCall"], place, ("content", at), used)
                else:
                    self._add_extra(message, part, place, at)
        if text and message.add_text(hash(text.strip()), len(text), place):
            self.touch(message.id)

    def _see_thought(
        self, message: Message, subject: str, description: str, place: Place, field: str, at: int
    ) -> None:
        text = thought_text(subject, description)
        if text:
            sign = hash(text)
            known = message.thoughts.get(sign)
            # The list has the thought's own time; a text part that restates it has not.
            if known is None or (known[1] == "content" and field == "thoughts"):
                if message.thoughts is NONE:
                    message.thoughts = {}
                message.thoughts[sign] = (place, field, at)
                self.touch(message.id)

    def _see_call(
        self,
        message: Message,
        record: dict[str, Any],
        place: Place,
        spot: tuple[str, int],
        used: dict[str, int],
    ) -> None:
        name = text_of(record.get("name"))
        call_id = text_of(record.get("id")) or f"{name}.{spot[1]}"
        bare = _numbered(record, call_id, used)
        call = message.calls.get(bare)
        if call is None:
            if spot[0] == "content" and self.was_recorded(bare):
                return  # another message made this call; here a resume restates it
            if message.calls is NONE:
                message.calls = {}
            call = message.calls[bare] = Call(call_id, name)
            if bare in self.calls:
                self.makers.setdefault(bare, [self.calls[bare][0]]).append(message)
            self.calls[bare] = (message, call)
        elif bare in self.makers:  # results that follow are this call's again
            self.calls[bare] = (message, call)
        if spot[0] == "content":
            if call.offer(0, place, spot):
                self.touch(message.id)
            return
        result = record.get("result")
        weight = result_weight(own_result(result, bare))
        if self.calls[bare][1] is call:
            self._note_answer(result, call_id, name)
        else:
            self._answers = None
        spawn = spawn_of(record)
        status = record.get("status")
        final = status in ("success", "error", "cancelled")
        richer = call.offer(1 + final * 2 + (record.get("resultDisplay") is not None), place, spot)
        if richer and not final and status is not None and text_of(status) not in CALL_STATUSES:
            self.note("status", status, place[0])
        if call.offer_answer(weight, place, spot) or richer or spawn != call.spawn:
            self.touch(message.id)
        call.spawn = spawn

    def _note_answer(self, result: Any, call_id: str, name: str) -> None:
        """Note the one part that a call gave, if it names the call; else what all of them gave."""
        if self._answers is None:
            return
        if isinstance(result, list) and len(result) == 1 and isinstance(result[0], dict):
            response = result[0].get("functionResponse")
            if (
                isinstance(response, dict)
                and response.get("id") == call_id
                and response.get("name") == name
            ):
                self._answers.append(result[0])
                return
        self._answers = None


def _numbered(record: dict[str, Any], call_id: str, used: dict[str, int]) -> str:
    """Return the bare id of a call or a result, numbered where its message uses it again.

    Args:
        record: the call or the result.
        call_id: its id, if it is to have another than its own.
        used: how often each id was used in the message so far.
    """
    bare = bare_call_id(call_id or text_of(record.get("id")), text_of(record.get("name")))
    number = used[bare] = used.get(bare, 0) + 1
    return bare if number == 1 else f"{bare}~{number}"
