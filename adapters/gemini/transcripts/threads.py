"""One transcript as a thread: read once, linked to the call that started it, then written out."""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from agentsdir.adapters.gemini.transcripts.fold import Fold
from agentsdir.adapters.gemini.transcripts.prompts import doubtful
from agentsdir.adapters.gemini.transcripts.shapes import moment_of, text_of
from agentsdir.formats import times
from agentsdir.formats.digest import short_hash
from agentsdir.formats.reading.blocks import MAIN, make_block
from agentsdir.formats.reading.sink import Link

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from agentsdir.adapters.gemini.transcripts.messages import Message
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.findings import Finding

    OneThread = TypeVar("OneThread", bound="Thread")

# The ids of the first agents with files of their own were this short; a longer one in a document
# is the parent's.
_SHORT_ID = 8
# How the folder is named in which the client keeps agents that it starts for itself.
_SKILLS = "skill-extraction-"


class Thread:
    """What one transcript says about the whole: whose it is, when it began, how it ended.

    Args:
        file: the transcript's name.
        child: whether it is a subagent's.
        is_document: whether it is one JSON object, else a log.
        hidden: whether rows that give hidden blocks alone are wanted.
    """

    def __init__(self, file: str, *, child: bool, is_document: bool, hidden: bool) -> None:
        self.file = file
        self.fold = Fold(file, hidden=hidden)
        self.child = child
        self.is_document = is_document
        # The name of the subagent and its link, as far as its parent says them.
        self.name = ""
        self.link = unlinked(file)
        self.conversation = MAIN
        # Whether a fuller file is the same thread, and the messages that it tells.
        self.is_copy = False
        self.repeated: set[str] = set()

    def own_id(self) -> str:
        """Return the id of the conversation that the transcript is, as far as it was read.

        A child has its own session id, or one made of its beginning where it bears its parent's.
        """
        if not self.child:
            return MAIN
        session = self.fold.session_id
        if session and not (self.is_document and len(session) > _SHORT_ID):
            return session
        messages = self.fold.index.messages.values()
        first = next((message.id for message in messages if message.role != "record"), "")
        start = text_of(self.fold.header.get("startTime"))
        return "agent-" + short_hash(f"{session}\0{start}\0{first}".encode("utf-8", "replace"))

    @property
    def own_messages(self) -> Iterable[Message]:
        """The messages that no other file tells."""
        messages = self.fold.index.messages.values()
        if not self.repeated:
            return messages
        return [one for one in messages if one.id not in self.repeated]

    @property
    def is_told(self) -> bool:
        """Whether a copy has a message that no other file tells."""
        return any(one.role != "record" for one in self.own_messages)

    def span(self) -> tuple[datetime, datetime] | None:
        """Return the times of the first and the last message."""
        moments = [
            moment
            for message in self.fold.index.messages.values()
            if (moment := moment_of(message.timestamp)) is not None
        ]
        return (min(moments), max(moments)) if moments else None

    def took(self) -> int | None:
        """Return how long the thread ran, in milliseconds."""
        span = self.span()
        return None if span is None else (span[1] - span[0]) // timedelta(milliseconds=1)

    def is_nested_in(self, main: Thread) -> bool:
        """Tell whether the file stands in the folder of `main`'s subagents."""
        return PurePath(self.file).parent.name == main.fold.session_id

    def bound(self, which: str) -> Block:
        """Return the block with which a subagent's thread starts or ends (``which``)."""
        span = self.span()
        fields: dict[str, Any] = {"subtype": f"session_{which}"}
        name = f"Subagent {self.name}" if self.name else "Subagent"
        if which == "start":
            fields["message"] = f"{name} started"
            moment = times.native(self.fold.header.get("startTime"))
        else:
            fields["message"] = f"{name} ended"
            moment = times.to_text(span[1]) if span else None
            summary = self.fold.header.get("summary")
            if isinstance(summary, str):
                fields["message"] = f"{name} completed"
                fields["metadata"] = {"result": summary}
        return make_block(
            "system",
            f"{self.conversation}:{which}",
            self.conversation,
            self.fold.session_id,
            moment,
            None,
            **fields,
        )

    def doubts(self) -> Iterator[Finding]:
        """Yield a remark on each prompt that may be the client's: a lost word would be worse."""
        index = self.fold.index
        for message_id, ((number, _), why) in index.doubts.items():
            if message_id in self.repeated:
                continue
            yield doubtful(
                self.file, index.line[number], index.offset[number], index.length[number], why
            )

    def counts_are_partial(self) -> bool:
        """Clients up to 0.30 merge turns that only call tools into one message with one count.

        They are told by the `kind` that no document of theirs has. Which of their messages are
        merged cannot be told, so any call makes their counts a lower bound.
        """
        models = [one for one in self.own_messages if one.role == "model" and not one.continues]
        if any(one.tokens is None for one in models) or self._awaits_an_answer():
            return True
        old = self.is_document and "kind" not in self.fold.header
        return old and any(one.calls for one in models)

    def _awaits_an_answer(self) -> bool:
        """Whether a prompt has no answer, or the last answer called a tool and nothing followed.

        The model may have been asked all the same: a run was killed, or failed. A subagent's last
        answer is such a call.
        """
        waiting = False
        for message in self.own_messages:
            if message.role == "model":
                waiting = bool(message.calls) and not self.child
            elif message.asks:
                if waiting and not message.answers:  # hints stand beside the results
                    return True
                waiting = True
        return waiting


def fullness(thread: Thread) -> tuple[int, bool, bool, str]:
    """Return what sorts the copies of a file: the one with most rows first, then the client's.

    Rows of metadata, which are not always read, do not count, but for what the end says.
    """
    fold = thread.fold
    rows = len(fold.index) - fold.amending["metadata"]
    is_renamed = PurePath(thread.file).stem != fold.session_id
    return -rows, "summary" not in fold.header, is_renamed, thread.file


def tell_copies_apart(children: Iterable[OneThread]) -> list[tuple[OneThread, OneThread]]:
    """Give each child its id; of files with one id, leave to each what no fuller one says.

    The fullest is the thread of that id; what another has beyond it is a thread with a number.

    Returns:
        Each child that is not the fullest of its id, with that one.
    """
    by_id: dict[str, list[OneThread]] = {}
    for child in children:
        child.conversation = child.own_id()
        child.is_copy, child.repeated = False, set()
        by_id.setdefault(child.conversation, []).append(child)
    copies = []
    for name, threads in by_id.items():
        if len(threads) == 1:
            continue
        first, *rest = sorted(threads, key=fullness)
        told = {message.id: [message] for message in first.fold.index.messages.values()}
        number = 1
        for copy in rest:
            copy.is_copy = True
            for message in copy.fold.index.messages.values():
                versions = told.setdefault(message.id, [])
                if any(message.says_no_more_than(one) for one in versions):
                    copy.repeated.add(message.id)
                    continue
                if any(message.tokens == one.tokens for one in versions):  # they were spent once
                    message.usage = None
                    copy.fold.index.touch(message.id)
                versions.append(message)
            number += copy.is_told
            copy.conversation = f"{name}~{number}"
            copies.append((copy, first))
    return copies


def link_children(
    main: Thread, children: Sequence[Thread]
) -> dict[tuple[str, str], tuple[str, int | None]]:
    """Tie each child to the call that started it; return (message id, call id) → (id, ms).

    An id that the call names is exact. Without one, a call whose time holds the child's counts,
    and the folder makes that likely. Where times say nothing, the one call that is left and the one
    child in the session's folder that is left are taken for each other.
    """
    spawned = [
        (message, bare, call.spawn)
        for message in main.fold.index.messages.values()
        for bare, call in message.calls.items()
        if call.spawn is not None
    ]
    linked: dict[tuple[str, str], tuple[str, int | None]] = {}
    late: list[Thread] = []
    for child in children:
        child.link, child.name = unlinked(child.file), ""
        for message, bare, spawn in spawned:
            if spawn.agent_id is not None and spawn.agent_id == child.conversation:
                child.link, child.name = Link("agentId", "exact"), spawn.name
                linked[message.id, bare] = child.conversation, child.took()
                break
        else:
            late.append(child)
    for child in late:
        for message, bare, spawn in spawned:
            free = spawn.agent_id is None and (message.id, bare) not in linked
            if free and _holds(message, spawn.ended, child):
                nested = child.is_nested_in(main)
                child.link = Link("directory+time", "likely") if nested else Link("time", "guess")
                child.name = spawn.name
                linked[message.id, bare] = child.conversation, child.took()
                break
    left = [
        (message, bare, spawn)
        for message, bare, spawn in spawned
        if spawn.agent_id is None and (message.id, bare) not in linked
    ]
    alone = [one for one in late if one.link.method == "none" and one.is_nested_in(main)]
    if len(left) == len(alone) == 1:
        ((message, bare, spawn),), (child,) = left, alone
        child.link, child.name = Link("directory", "guess"), spawn.name
        linked[message.id, bare] = child.conversation, child.took()
    return linked


def unlinked(file: str) -> Link:
    """Return the link of a child before a call is found: some threads no call has started."""
    purpose = PurePath(file).parent.name.startswith(_SKILLS)
    return Link(_SKILLS.rstrip("-") if purpose else "none", "none")


def _holds(message: Message, ended: Any, child: Thread) -> bool:
    begin, end, span = moment_of(message.timestamp), moment_of(ended), child.span()
    return (
        begin is not None
        and end is not None
        and span is not None
        and (begin <= span[0] and span[1] <= end)
    )
