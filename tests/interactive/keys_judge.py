"""The judge: blocks of a recording's sessions against what its log says was typed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from keys_exemptions import (
    AS_SENT,
    BESIDE_A_YES,
    CUT,
    LEFT,
    SENT_LATER,
    TAKEN_BACK,
    TITLES,
    WAITED,
)
from keys_log import Recording, Typed, seconds_of

Block = dict[str, Any]
Sessions = Mapping[str, list[Block]]
"""All blocks of each session, superseded ones too, in order."""

# Seconds from the Enter to the time of the row, and for what the client sent later.
AT_ONCE, LATER = 1.3, 9.0
# Rows that the client writes for a prompt may be milliseconds older than the prompt.
SLACK = 0.05


def faults(recording: Recording, sessions: Sessions) -> list[str]:
    """Return in words all that is not as the log says."""
    return [
        *_prompts(recording, sessions),
        *_commands(recording, sessions),
        *_refusals(recording, sessions),
        *(fault for blocks in sessions.values() for fault in _order(recording, _main(blocks))),
        *(fault for blocks in sessions.values() for fault in _times(recording, _main(blocks))),
    ]


def expected_prompts(recording: Recording) -> list[Typed]:
    """Return what must stand as a person's words: prompts, and words beside a yes."""
    beside = "feedback" if recording.name in BESIDE_A_YES else "prompt"
    sent = (
        one for one in recording.meant("prompt", beside) if (recording.name, one.text) not in CUT
    )
    return [_as_sent(recording, one) for one in sent]


def unwritten_commands(recording: Recording) -> list[str]:
    """Return the commands of which the client wrote nothing into its transcripts."""
    written = "".join(path.read_text() for path in recording.transcripts())
    found = []
    for one in recording.meant("command", "bash"):
        if one.text in TAKEN_BACK:
            continue
        text = _as_sent(recording, one).text.removeprefix("!").strip()
        quoted = _quoted(text)
        shell = text.replace("\\", r"\\").replace("`", r"\`")
        forms = [f">{quoted}<", f"<command-name>{text.partition(' ')[0]}<", f'"{quoted}"']
        forms.append(_quoted(f"```sh\n{shell}\n```"))
        if not any(form in written for form in forms):
            found.append(one.text)
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def expected_titles(recording: Recording, sessions: Sessions) -> list[str]:
    """Return the titles of these sessions as a list shows them, in no order.

    That is the client's own, if a session has one, else the first prompt.
    """
    own = TITLES.get(recording.name)
    if own is not None:
        first = next(one.text for one in expected_prompts(recording))
        return sorted(first if first.startswith(title) else title for title in own)
    titles = []
    for blocks in sessions.values():
        said = [text_of(block) for block in _main(blocks) if block["type"] == "user_message"]
        typed = [one for one in expected_prompts(recording) if any(map(one.is_in, said))]
        titles += [" ".join(typed[0].text.split())] if typed else []
    return sorted(titles)


def text_of(block: Block) -> str:
    """Return the text of a prompt, which may have images between."""
    content = block["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def _as_sent(recording: Recording, typed: Typed) -> Typed:
    return typed._replace(text=AS_SENT.get((recording.name, typed.text), typed.text))


def _main(blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if block["conversationId"] == "main"]


def _said(sessions: Sessions) -> Iterator[Block]:
    """Yield each prompt once; a session that was forked has those before it, with their ids."""
    known = set()
    for blocks in sessions.values():
        for block in _main(blocks):
            if block["type"] == "user_message" and block["id"] not in known:
                known.add(block["id"])
                yield block


def _prompts(recording: Recording, sessions: Sessions) -> Iterator[str]:
    """Each prompt once, superseded if the person or the client left it, and no other."""
    said = list(_said(sessions))
    for typed, count in Counter(one._replace(at=0) for one in expected_prompts(recording)).items():
        found = [block for block in said if typed.is_in(text_of(block))]
        said = [block for block in said if block not in found]
        if len(found) != count:
            yield f"typed {count}, found {len(found)}: {typed.text[:90]!r}"
        words = typed.text.partition(" [[")[0]
        left = (recording.name, words) in LEFT if typed.rewound is None else typed.rewound
        for block in found:
            if bool(block.get("superseded")) != left:
                yield f"{'live' if left else 'superseded'}, and should not be: {typed.text[:90]!r}"
    for block in said:
        yield f"never typed: {text_of(block)[:90]!r}"


def _commands(recording: Recording, sessions: Sessions) -> Iterator[str]:
    """Each command and each `!` line a system block with what was typed."""
    found = {
        block["id"]: block["message"]
        for blocks in sessions.values()
        for block in _main(blocks)
        if block["type"] == "system" and isinstance(block["message"], str)
    }
    told = Counter(message.strip() for message in found.values())
    none = {*unwritten_commands(recording), *TAKEN_BACK}
    typed = [one for one in recording.meant("command", "bash") if one.text not in none]
    for text, count in Counter(_as_sent(recording, one).text.strip() for one in typed).items():
        times = told[text] + told[text[1:]] * text.startswith("!")
        if times != count:
            yield f"typed {count}, found {times}: the command {text!r}"


def _refusals(recording: Recording, sessions: Sessions) -> Iterator[str]:
    """Words in a refusal, or in an answer to a question, stay in the result of the call."""
    if recording.name in BESIDE_A_YES:
        return
    results = {
        block["id"]: str(block["output"])
        for blocks in sessions.values()
        for block in blocks
        if block["type"] == "tool_result" and not block.get("superseded")
    }
    for typed in recording.meant("feedback"):
        text = _as_sent(recording, typed).text
        if sum(text in output for output in results.values()) != 1:
            yield f"not in one result of a call: {typed.text!r}"


def _order(recording: Recording, blocks: list[Block]) -> Iterator[str]:
    """Prompts stand as they were typed, and part what came before them from what came after.

    What waited in a queue was taken in later than it was typed, and parts nothing.
    """
    expected = expected_prompts(recording)
    shown = [block for block in blocks if block["type"] == "user_message"]
    places = [
        next((at for at, one in enumerate(expected) if one.is_in(text_of(block))), -1)
        for block in shown
    ]
    if len(set(places)) == len(places) and places != sorted(places):
        yield f"in another order than typed: {[text_of(block)[:40] for block in shown]}"

    def parts(block: Block) -> bool:
        queued = (
            one
            for one in expected
            if one.queued or (recording.name, one.text.partition(" [[")[0]) in WAITED
        )
        return block["type"] == "user_message" and not any(q.is_in(text_of(block)) for q in queued)

    live = [block for block in blocks if not block.get("superseded") and block["timestamp"]]
    begun = 0.0
    for before, block in pairwise([None, *live]):
        assert block is not None
        at = seconds_of(block["timestamp"])
        if parts(block):
            if before is not None and seconds_of(before["timestamp"]) > at + SLACK:
                yield f"{text_of(block)[:60]!r} stands after a later {before['type']}"
            begun = at
        elif at < begun - SLACK and block["type"] != "user_message":
            yield f"{block['type']} of {block['timestamp']} stands after a later prompt"


def _times(recording: Recording, blocks: list[Block]) -> Iterator[str]:
    """A prompt has the time at which it was typed, also one that waited in Claude's queue."""
    for block in blocks:
        if block["type"] != "user_message":
            continue
        typed = [one for one in expected_prompts(recording) if one.is_in(text_of(block))]
        late = [seconds_of(block["timestamp"]) - one.at for one in typed]
        waits = any(one.queued for one in typed) and not recording.is_claude
        patience = LATER if waits or recording.name in SENT_LATER else AT_ONCE
        if typed and not any(-0.2 <= one <= patience for one in late):
            yield f"has another time than its typing, by {late} s: {text_of(block)[:60]!r}"
