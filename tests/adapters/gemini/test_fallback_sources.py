"""Prompt logs and saved chats: read when named, and where no session has what they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gemini_reading import FIXTURES, Reading, read_bytes
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.adapters.gemini import store
from agentsdir.formats.source import Source

LOG = json.dumps(
    [
        {"sessionId": "s1", "messageId": 0, "type": "user", "message": "hi", "timestamp": "T"},
        {"sessionId": "s2", "messageId": 0, "type": "user", "message": "/help"},
        {"sessionId": "s1", "messageId": 1, "type": "user", "message": "again",
         "timestamp": "2026-01-01T00:00:02.000Z"},
    ],
    indent=2,
).encode()  # fmt: skip
CALL = {"functionCall": {"id": "c1", "name": "ls", "args": {"p": "."}}, "thoughtSignature": "c2ln"}
ANSWER = {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a\nb"}}}
TURNS = [
    {"role": "user", "parts": [{"text": "This is the Gemini CLI. We are setting up the context."}]},
    {"role": "model", "parts": [{"text": "Got it. Thanks for the context!"}]},
    {"role": "user", "parts": [{"text": "list"}]},
    {
        "role": "model",
        "parts": [{"text": "**Look** here", "thought": True}, {"text": "Yes."}, CALL],
    },
    {"role": "user", "parts": [ANSWER]},
    {"role": "model", "parts": [{"text": "Two files."}]},
]
RESTORE = {
    "clientHistory": TURNS,
    "toolCall": {"name": "replace", "args": {"file_path": "/w/a.txt"}},
    "commitHash": "c0ffee",
    "messageId": "s1########2",
}


def _dumps(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


def _seen(reading: Reading) -> list[tuple[str, Any]]:
    return [
        (block["type"], block.get("content", block.get("output", block.get("toolName"))))
        for block in reading.blocks()
        if not block.get("hidden")
    ]


TALK = [
    ("user_message", "list"),
    ("thinking", "here"),
    ("assistant_text", "Yes."),
    ("tool_use", "ls"),
    ("tool_result", "a\nb"),
    ("assistant_text", "Two files."),
]


@pytest.mark.parametrize(
    ("value", "session"),
    [(TURNS, ""), ({"history": TURNS, "authType": "x"}, ""), (RESTORE, "s1")],
    ids=["bare", "chat save", "restore"],
)
def test_a_saved_chat_is_read_as_the_model_was_sent_it(value: Any, session: str) -> None:
    """All three forms give the same; what the client puts first is hidden."""
    reading = read_bytes(_dumps(value), "checkpoint-x.json")
    assert _seen(reading) == TALK
    assert reading.findings == ["last-resort"]
    assert {block["sessionId"] for block in reading.blocks()} == {session}
    (call,) = [block for block in reading.blocks() if block["type"] == "tool_use"]
    assert (call["toolUseId"], call["status"]) == ("c1", "success")
    assert reading.sinks[0].usage()["exact"] is False
    reading.totals()


def _words(block: dict[str, Any]) -> list[str]:
    return [block[key] for key in ("content", "message") if key in block]


def test_a_prompt_log_has_the_prompts_of_all_sessions() -> None:
    """Each says whose it is."""
    reading = read_bytes(LOG, "logs.json")
    said = [(one["sessionId"], one["id"], *_words(one)) for one in reading.blocks()]
    assert said == [
        ("s1", "s1/0:p", "hi"),
        ("s2", "s2/0:p", "/help"),
        ("s1", "s1/1:p", "again"),
    ]
    assert reading.findings == ["last-resort"]
    assert reading.totals()["parsed"] == 3


def test_ids_of_old_calls_are_made_up_and_results_found_by_name() -> None:
    """Two calls of one tool are answered in their order; an unanswered one is pending."""
    call = {"functionCall": {"name": "ls", "args": {}}}
    answers = [{"functionResponse": {"name": "ls", "response": {"output": n}}} for n in "ab"]
    turns = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [call, call, call]},
        {"role": "user", "parts": answers},
    ]
    blocks = read_bytes(_dumps(turns)).blocks()
    uses = {b["toolUseId"]: b["status"] for b in blocks if b["type"] == "tool_use"}
    assert uses == {"ls.": "success", "ls.~2": "success", "ls.~3": "pending"}
    results = [(b["toolUseId"], b["output"]) for b in blocks if b["type"] == "tool_result"]
    assert results == [("ls.", "a"), ("ls.~2", "b")]


def test_a_call_and_a_result_that_are_written_twice_are_shown_once() -> None:
    """A resume sends each result again; the second telling is kept, hidden."""
    turns = [*TURNS[:5], {"role": "user", "parts": [ANSWER]}, TURNS[5]]
    reading = read_bytes(_dumps(turns))
    assert _seen(reading) == TALK
    assert read_bytes(_dumps([TURNS[4]])).findings == ["orphan-result", "last-resort"]


@pytest.mark.parametrize(
    ("others", "read"),
    [
        ([], ["p/checkpoint-a.json", "p/logs.json"]),
        (["s1"], ["p/chats/s1.jsonl", "p/checkpoint-a.json", "p/logs.json"]),
        (["s1", "s2"], ["p/chats/s1.jsonl", "p/chats/s2.jsonl", "p/checkpoint-a.json"]),
    ],
)
def test_in_a_folder_they_tell_what_no_session_has(others: list[str], read: list[str]) -> None:
    """Prompts by session; a saved chat, which names none, by its prompts."""
    sources = [
        Source(
            f"p/chats/{one}.jsonl",
            data=b'{"sessionId":"%s","projectHash":"h"}\n{"id":"u","type":"user","content":"x"}\n'
            % one.encode(),
        )
        for one in others
    ]
    sources += [
        Source("p/checkpoint-a.json", data=_dumps(TURNS)),
        Source("p/logs.json", data=LOG),
    ]
    reading = Reading(sources)
    assert [session.transcripts[0].source.name for session in reading.sessions] == read
    passed = [f.file for sink in reading.sinks for f in sink.findings if f.id == "skipped-file"]
    assert sorted({*read, *passed}) == sorted(source.name for source in sources)
    prompts = {b["id"] for b in reading.blocks() if b["source"]["file"] == "p/logs.json"}
    kept = (
        {"s1/0:p", "s1/1:p", "s2/0:p"} if not others else {"s2/0:p"} - {f"{o}/0:p" for o in others}
    )
    assert prompts == kept
    reading.totals()


def test_in_the_clients_store_they_come_behind_the_sessions_of_their_project(
    tmp_path: Path,
) -> None:
    """Nothing else beside the chats is opened."""
    project = tmp_path / "tmp" / "p"
    for name, data in (
        ("chats/session-1-s1.jsonl", b'{"sessionId":"s1","projectHash":"h"}\n'),
        ("logs.json", LOG),
        ("checkpoint-a%2Fb.json", _dumps(TURNS)),
        ("checkpoint-empty.json", b""),
        ("checkpoints/1-a.txt-replace.json", _dumps(RESTORE)),
        ("shell_history", b"secret"),
        ("other.json", b"{}"),
    ):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    found = list(store.transcripts(tmp_path, _refuse))
    assert [path.relative_to(project).as_posix() for path in found] == [
        "chats/session-1-s1.jsonl",
        "checkpoint-a%2Fb.json",
        "logs.json",
        "checkpoints/1-a.txt-replace.json",
    ]
    assert list(store.transcripts(project / "chats", _refuse)) == found[:1]


def _refuse(error: OSError) -> None:
    raise error


def test_a_stub_does_not_stand_for_its_session() -> None:
    """Where a header is all there is, the prompts are more."""
    header = Source("p/chats/s1.jsonl", data=b'{"sessionId":"s1","projectHash":"h"}\n')
    reading = Reading([header, Source("p/logs.json", data=LOG)])
    assert len(reading.sessions) == 2
    assert [_words(block) for block in reading.blocks()] == [["hi"], ["/help"], ["again"]]


def test_of_the_checkpoints_of_one_session_the_last_is_read() -> None:
    """Each is a full copy of what came before."""
    sources = [
        Source(f"p/checkpoints/{n}-a.txt-replace.json", data=_dumps(RESTORE)) for n in range(3)
    ]
    reading = Reading(sources)
    (session,) = reading.sessions
    assert session.transcripts[0].source.name == "p/checkpoints/2-a.txt-replace.json"
    assert reading.findings.count("skipped-file") == 2


def _first_end(data: bytes) -> int:
    """Return where the second entry begins: so much is needed to tell what the file is."""
    start = data.index(b"{", data.index(b"["))
    indent = data[:start].rpartition(b"\n")[2]
    return data.index(b"\n" + indent + b"},", start) + len(indent) + 2


@pytest.mark.parametrize("data", [LOG, _dumps(TURNS), _dumps(RESTORE)])
@given(cut=st.integers(1, 2000))
def test_what_was_cut_anywhere_keeps_its_complete_entries(data: bytes, cut: int) -> None:
    """Half a file is damage, and all that stands in it whole is read."""
    first = _first_end(data)
    reading = read_bytes(data[: max(len(data) - cut, first)], "half.json")
    whole = {block["id"] for block in read_bytes(data).blocks() if not block.get("hidden")}
    assert {block["id"] for block in reading.blocks() if not block.get("hidden")} <= whole
    assert "half-document" in reading.findings
    reading.totals()


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["user", "model", "x"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["role", "parts", "text", "thought", "functionCall", "functionResponse", "id", "name",
             "response", "output", "inlineData", "data", "type", "sessionId", "messageId",
             "message"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(values, max_size=6), st.sampled_from(["", "history", "clientHistory"]))
def test_no_shape_of_a_list_raises_or_goes_uncounted(entries: list[Any], name: str) -> None:
    """Any JSON among real turns gives blocks with unique ids."""
    listed = [*TURNS[2:3], *entries]
    reading = read_bytes(_dumps({name: listed} if name else listed))
    ids = [block["id"] for block in reading.blocks()]
    assert len(ids) == len(set(ids))
    reading.totals()
    prompts = [{"sessionId": "s", "messageId": 0, "message": "m"}, *entries]
    reading = read_bytes(_dumps(prompts))
    ids = [block["id"] for block in reading.blocks()]
    assert len(ids) == len(set(ids))
    reading.totals()


def test_a_prompt_that_a_resumed_run_logged_under_an_id_of_its_own_stands_once() -> None:
    """Its session's file has it, a moment later; what is nowhere else is read."""
    said = {"id": "u", "type": "user", "timestamp": "2026-01-01T00:00:02.400Z", "content": "again"}
    session = {"sessionId": "s1", "projectHash": "h", "messages": [said]}
    entries = [
        {"sessionId": "run2", "messageId": at, "type": "user", "message": text, "timestamp": time}
        for at, (text, time) in enumerate(
            [
                ("again", "2026-01-01T00:00:02.000Z"),
                ("again", "2026-01-01T00:00:03.000Z"),
                ("lost", "2026-01-01T00:00:04.000Z"),
            ]
        )
    ]
    chat = Source("p/chats/session-1.json", data=_dumps(session))
    both = Reading([chat, Source("p/logs.json", data=_dumps(entries))], hidden=False)
    assert [(block["id"], block["content"]) for block in both.blocks()] == [
        ("u:p", "again"), ("run2/1:p", "again"), ("run2/2:p", "lost"),
    ]  # fmt: skip
    both.totals()
    alone = Reading([chat, Source("p/logs.json", data=_dumps(entries[:1]))], hidden=False)
    assert [block["id"] for block in alone.blocks()] == ["u:p"]
    assert "skipped-file" in alone.findings


def test_commands_in_the_prompt_log_are_no_prompts() -> None:
    """The log has all that was typed; a path is no command's name."""
    typed = ["/chat save spot", "/greet", "/etc/hosts is a path", "// a comment", "hello"]
    entries = [
        {"sessionId": "s", "messageId": number, "type": "user", "message": text,
         "timestamp": "2026-01-01T00:00:00.000Z"}
        for number, text in enumerate(typed)
    ]  # fmt: skip
    blocks = read_bytes(json.dumps(entries).encode(), "logs.json").blocks()
    assert [block["type"] for block in blocks] == ["system"] * 2 + ["user_message"] * 3
    assert [block.get("message", block.get("content")) for block in blocks] == typed
    assert all(b["metadata"] == {"event": "local_command"} for b in blocks[:2])


def _log_of(*rows: tuple[str, int, str, str]) -> bytes:
    """Return a prompt log: of each row session, number, prompt and seconds of its minute."""
    return _dumps(
        [
            {"sessionId": session, "messageId": number, "type": "user", "message": text,
             "timestamp": f"2026-01-01T00:00:{seconds}.000Z"}
            for session, number, text, seconds in rows
        ]
    )  # fmt: skip


def _prompts(sources: list[Source]) -> list[str]:
    reading = Reading(sources, hidden=False)
    reading.totals()
    read = {session.transcripts[0].source.name for session in reading.sessions}
    passed = {f.file for sink in reading.sinks for f in sink.findings if f.id == "skipped-file"}
    assert read | passed == {source.name for source in sources}
    return [block["content"] for block in reading.blocks() if block["type"] == "user_message"]


def _session(folder: str, name: str, *prompts: tuple[str, str]) -> Source:
    messages = [
        {"id": f"u{at}", "type": "user", "timestamp": f"2026-01-01T00:00:{second}.500Z",
         "content": text}
        for at, (text, second) in enumerate(prompts)
    ]  # fmt: skip
    value = {"sessionId": name, "projectHash": "h", "messages": messages}
    return Source(f"{folder}/chats/session-1-{name}.json", data=_dumps(value))


def test_a_saved_chat_is_passed_over_if_one_session_has_all_its_prompts() -> None:
    """In their order, whatever was said between; else it may be all that is left of a talk."""
    chat = Source("p/checkpoint-a.json", data=_dumps(TURNS))
    whole = _session("p", "s1", ("before", "01"), ("list", "02"))
    assert _prompts([whole, chat]) == ["before", "list"]
    assert _prompts([_session("p", "s1", ("other", "01")), chat]) == ["other", "list"]


def test_what_a_saved_chat_has_is_not_told_again_by_the_prompt_log() -> None:
    """The prompts of its session that came later are, and so is any other session's."""
    chat = Source("p/checkpoint-a.json", data=_dumps(TURNS))
    log = [("s1", 0, "/help", "01"), ("s1", 1, "list", "02"), ("s1", 2, "later", "03"),
           ("s2", 0, "list", "04")]  # fmt: skip
    left = ["list", "later", "list"]
    assert _prompts([chat, Source("p/logs.json", data=_log_of(*log))]) == left
    restore = Source("p/checkpoints/1-a.json", data=_dumps({**RESTORE, "messageId": "s2########1"}))
    left = ["list", "list", "later"]
    assert _prompts([restore, Source("p/logs.json", data=_log_of(*log))]) == left


def test_what_stands_in_the_folders_of_one_project_twice_is_read_once() -> None:
    """A newer client copies the folder under another name, and goes on in one of them."""
    old = _log_of(("s1", 0, "one", "01"), ("s2", 0, "two", "02"))
    new = _log_of(("s1", 0, "one", "01"), ("s2", 0, "two", "02"), ("s3", 0, "three", "03"))
    logs = [Source("ab/logs.json", data=old), Source("slug/logs.json", data=new)]
    assert _prompts(logs) == ["one", "two", "three"]
    assert _prompts([_session("slug", "s2", ("two", "02")), *logs]) == ["two", "one", "three"]
    chats = [Source(f"{one}/checkpoint-a.json", data=_dumps(TURNS)) for one in ("ab", "slug")]
    assert _prompts(chats) == ["list"]


def test_an_id_of_another_project_takes_no_prompt_away() -> None:
    """Who names sessions by hand may use a name twice."""
    log = Source("b/logs.json", data=_log_of(("mine", 0, "hi", "01")))
    assert _prompts([_session("a", "mine", ("else", "01")), log]) == ["else", "hi"]


def _told(*typed: tuple[int, str], written: list[tuple[int, str]], log: bool = False) -> list[str]:
    """Return the prompts that a log of one session adds to its file; times are in seconds."""
    entries = [
        {"sessionId": "s1", "messageId": number, "type": "user", "message": text,
         "timestamp": f"2026-01-01T00:00:{at:02}.000Z"}
        for number, (at, text) in enumerate(typed)
    ]  # fmt: skip
    messages = [
        {"id": f"m{number}", "timestamp": f"2026-01-01T00:00:{at:02}.300Z", "type": "user",
         "content": text}
        for number, (at, text) in enumerate(written)
    ]  # fmt: skip
    header = {"sessionId": "s1", "projectHash": "h"}
    chat = Source("p/chats/s1.json", data=_dumps({**header, "messages": messages}))
    if log:
        rows = b"".join(json.dumps(row).encode() + b"\n" for row in (header, *messages))
        chat = Source("p/chats/s1.jsonl", data=rows)
    reading = Reading([chat, Source("p/logs.json", data=_dumps(entries))])
    reading.totals()
    found = [one for one in reading.blocks("all") if one["source"]["file"] == "p/logs.json"]
    if found:  # nothing of the rest is called gone
        gone = sum(text.startswith(("/", "ls")) for _, text in typed)
        assert reading.sinks[1].tally.folded_by["not-in-session"] == gone
    assert all(one["type"] == "user_message" and one["superseded"] for one in found)
    return [str(one["content"]) for one in found]


def test_prompts_that_a_rewind_took_out_of_the_file_are_superseded() -> None:
    """A recording of 0.38.2: three prompts, two rewinds, and the one prompt that is left."""
    folder = FIXTURES / "rewind-0.38"
    files = sorted(path for path in folder.rglob("*.json"))
    reading = Reading([Source(str(f.relative_to(folder)), data=f.read_bytes()) for f in files])
    said = [
        (one["content"], one.get("superseded", False), one["sessionId"][:8])
        for one in reading.blocks("all")
        if one["type"] == "user_message"
    ]
    assert said == [
        ("Try again [[plan:recall q=3]]", False, "cd59abc8"),
        ("First try [[plan:recall q=1]]", True, "cd59abc8"),
        ("Second of the first [[plan:hello q=1]]", True, "cd59abc8"),
        ("Try again [[plan:recall q=2]]", True, "cd59abc8"),
    ]
    tally = reading.sinks[1].tally
    assert tally.folded_by == {"told-elsewhere": 1, "not-in-session": 2}
    assert reading.sinks[1].superseded_by() == {"rewind": 3}
    assert [one["content"] for one in reading.blocks() if one["type"] == "user_message"] == [
        "Try again [[plan:recall q=3]]"
    ]
    reading.totals()


def test_a_prompt_that_was_typed_again_behind_a_rewind_stands_twice() -> None:
    """Equal words count as often as they were typed, however fast."""
    typed = (1, "one"), (3, "go"), (5, "/rewind"), (8, "go")
    assert _told(*typed, written=[(1, "one"), (8, "go")]) == ["go"]
    assert _told(*typed, written=[(1, "one"), (3, "go"), (8, "go")]) == []


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize(
    "written",
    [
        [(1, "one"), (9, "go\n\nand on"), (20, "end")],  # they waited
        [(1, "one"), (3, "go, with a file in it"), (5, "expanded"), (20, "end")],
    ],
)
def test_what_the_file_has_in_other_words_is_not_told_again(
    written: list[tuple[int, str]], *, log: bool
) -> None:
    """Prompts that were joined or expanded, before a rewind that took out others."""
    typed = (1, "one"), (3, "go"), (5, "and on"), (11, "gone"), (13, "/rewind"), (20, "end")
    assert _told(*typed, written=written, log=log) == ["gone"]


def test_only_a_rewind_takes_prompts_out() -> None:
    """Lines in shell mode and prompts that were taken back stand in no file either."""
    shell = (1, "one"), (3, "ls"), (5, "two"), (7, "gone"), (9, "/help"), (11, "/rewind")
    written = [(1, "one"), (5, "two")]
    assert _told(*shell, written=written) == ["gone"]
    assert _told(*shell[:-1], written=written) == []


def test_what_was_typed_behind_a_clear_stands_in_the_next_file() -> None:
    """The log goes on with the old id, so a rewind there takes out what that file has not."""
    rows = [(1, "s1", "one"), (3, "s2", "two")]
    chats = [
        Source(
            f"p/chats/{session}.json",
            data=_dumps(
                {"sessionId": session, "projectHash": "h", "messages": [
                    {"id": "m", "timestamp": f"2026-01-01T00:00:0{at}.100Z", "type": "user",
                     "content": text}
                ]}
            ),
        )
        for at, session, text in rows
    ]  # fmt: skip
    typed = (1, "one"), (2, "/clear"), (3, "two"), (5, "gone"), (7, "/rewind")
    entries = [
        {"sessionId": "s1", "messageId": at, "type": "user", "message": text,
         "timestamp": f"2026-01-01T00:00:0{at}.000Z"}
        for at, text in typed
    ]  # fmt: skip
    reading = Reading([*chats, Source("p/logs.json", data=_dumps(entries))])
    said = [(one["content"], one.get("superseded", False)) for one in reading.blocks("all")]
    assert said == [("one", False), ("two", False), ("gone", True)]
