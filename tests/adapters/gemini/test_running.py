"""What is particular to a turn of Gemini CLI: ids, stubs, the system prompt, and what it drops."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import SHORT, blocks, run, texts
from clients import OTHER
from gemini_bench import ASKED, CHAT, GeminiBench, chat
from gemini_client import Gemini, hashed

from agentsdir.adapters import processes
from agentsdir.formats.errors import ProviderError

TURN = GeminiBench.turn
TOLD = [("u1:p", "user_message", "hi"), ("g1:x", "assistant_text", "An answer")]


@pytest.fixture
def bench(client: Gemini) -> GeminiBench:
    """Return a place to run the stand-in in."""
    return client.bench(client.home)


def keep(told: Iterator[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    """Take events one by one, so that those before an error are there."""
    for event in told:
        events.append(event)  # noqa: PERF402, `extend` would drop them


def test_the_blocks_of_a_turn_come_from_the_chat_file(bench: GeminiBench) -> None:
    """Nothing that it says is taken from stdout, whether the session is new or resumed."""
    assert blocks(run(bench.create(TURN))) == TOLD
    assert bench.heard() == "hi"
    bench.chats_folder.joinpath(Path(CHAT).name).unlink()
    assert blocks(run(bench.restore(TURN))) == TOLD


def test_a_copy_in_another_project_is_not_taken_for_the_file_of_the_turn(
    bench: GeminiBench,
) -> None:
    """Not even a later one: the client looks in the folder of its own project alone."""
    other = bench.home / ".gemini/tmp/other/chats" / Path(CHAT).name
    other.parent.mkdir(parents=True)
    other.write_bytes(bench.saved[CHAT])
    os.utime(other, (4e9, 4e9))
    assert blocks(run(bench.restore(TURN))) == TOLD


def test_a_folder_that_the_client_copies_as_it_starts_is_followed_where_it_went(
    bench: GeminiBench,
) -> None:
    """A client from 0.29 on does that with the one of an older client."""
    projects = bench.chats_folder.parents[1]
    old = projects / hashed(str(bench.folder.resolve()))
    (old / "chats").mkdir(parents=True)
    (old / "chats" / Path(CHAT).name).write_bytes(bench.saved[CHAT])
    copies = (
        "import shutil\n"
        f"new = shutil.copytree({str(old)!r}, {str(projects / 'ws')!r})\n"
        "pathlib.Path(new, '.project_root').write_text(os.getcwd())\n"
    )
    assert blocks(run(bench.restore(copies + TURN))) == TOLD


def test_a_client_that_takes_no_id_says_which_it_chose_before_anything_else(
    bench: GeminiBench,
) -> None:
    """The caller, which logs it, has it before the first block."""
    bench.version = "0.38.2"
    session = bench.create(TURN)
    events = session.send("hi")
    next(events)
    assert bench.named == [OTHER]
    list(events)
    session.stop()
    arguments, _ = bench.given()
    assert not any(one.startswith(("--session-id", "--resume")) for one in arguments)
    assert [file.role for file in session.transcripts()] == ["main"]


def test_a_session_without_an_answer_begins_anew_under_another_id(bench: GeminiBench) -> None:
    """The client neither resumes it nor lets another have its id. The prompt is reported once."""
    refuses = (
        "if any(a.startswith('--resume') for a in sys.argv):\n"
        "    print('Error resuming session: none', file=sys.stderr); sys.exit(42)\n"
    )
    told = blocks(run(bench.restore(refuses + TURN, chat(ASKED))))
    assert [kind for _, kind, _ in told] == ["user_message", "assistant_text"]
    assert bench.named == [OTHER]
    assert f"--session-id={OTHER}" in bench.given(1)[0]


def test_a_session_with_an_answer_that_cannot_be_resumed_is_not_begun_anew(
    bench: GeminiBench,
) -> None:
    """It would go on without its context, in silence."""
    refuses = "print('Error resuming session: none', file=sys.stderr); sys.exit(42)"
    with pytest.raises(ProviderError) as refused:
        run(bench.restore(refuses))
    assert refused.value.kind == "no-conversation"
    assert bench.runs == 1
    assert bench.named == []


def test_a_system_prompt_is_a_file_of_ours_that_goes_with_the_turn(bench: GeminiBench) -> None:
    """Only its owner can read it."""
    reads = (
        "said = pathlib.Path(os.environ['GEMINI_SYSTEM_MD'])\n"
        "with open('instructions', 'w') as file:\n"
        "    json.dump([said.read_text(), said.stat().st_mode & 0o777], file)\n"
        "done()"
    )
    run(bench.create(reads, system_prompt="-be brief\n"))
    assert json.loads((bench.folder / "instructions").read_text()) == ["-be brief\n", 0o600]
    assert not os.path.exists(bench.given()[1]["GEMINI_SYSTEM_MD"])  # noqa: PTH110


def test_a_system_prompt_that_cannot_be_written_is_an_error_of_ours(bench: GeminiBench) -> None:
    """And nothing runs without it."""
    bench.host = bench.host._replace(environment={"TMPDIR": str(bench.folder / "gone")})
    with pytest.raises(ProviderError, match="gone") as refused:
        run(bench.create(system_prompt="be brief"))
    assert refused.value.kind == "no-folder"
    assert bench.runs == 0


def test_a_prompt_in_parts_is_typed_as_one_and_an_image_is_refused(bench: GeminiBench) -> None:
    """The client reads text; a file it reads by its name."""
    text = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    run(bench.create(), text)
    assert bench.heard() == "one\n\ntwo"
    with pytest.raises(ProviderError, match="image") as refused:
        run(bench.create(), [*text, {"type": "image", "source": {}}])
    assert refused.value.kind == "text-only"
    with pytest.raises(ProviderError) as refused:
        run(bench.create(), "x" * (8 * 1024 * 1024 + 1))
    assert refused.value.kind == "prompt-too-long"
    assert bench.runs == 1


def test_what_was_said_before_an_interrupt_is_kept_from_the_output(bench: GeminiBench) -> None:
    """The client drops the text it was saying, and a call that did not return."""
    body = (
        "import signal\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(0))\n"
        "init(ID); chat(header(), row('u1', 'user', 'hi')); part('So far')\n"
        "say(type='tool_use', tool_name='run_shell_command', tool_id='t1',"
        " parameters=dict(command='sleep 9'))\n"
        "open('hangs', 'w').close()\n"
        "time.sleep(600)"
    )
    session = bench.create(body)
    events: list[dict[str, Any]] = []
    for event in session.send("hi"):
        events.append(event)
        if (event.get("block") or {}).get("type") == "tool_use":
            break
    events += session.interrupt()
    session.stop()
    assert texts(events) == [
        ("user_message", "hi"),
        ("assistant_text", "So far"),
        ("tool_use", None),
    ]
    begun = {e["blockId"] for e in events if e["type"] == "block_start"}
    assert begun <= {e["blockId"] for e in events if e["type"] == "block_complete"}


def test_the_prompt_of_a_client_that_never_mentions_it_is_reported(bench: GeminiBench) -> None:
    """It was refused before it began, or interrupted; and where it is mentioned, that is it."""
    session = bench.create("print('no login', file=sys.stderr); sys.exit(41)")
    told = session.send("hi")
    assert texts([next(told)]) == [("user_message", "hi")]
    with pytest.raises(ProviderError):
        next(told)
    session.stop()
    session = bench.create("init(ID); sys.exit(9)")
    told = session.send("hi")
    events: list[dict[str, Any]] = []
    with pytest.raises(ProviderError):
        keep(told, events)
    session.stop()
    assert texts(events) == [("user_message", "hi")]


def test_a_mode_that_the_client_has_not_is_refused_before_anything_runs(bench: GeminiBench) -> None:
    """The client would answer with all the arguments that there are."""
    bench.host = bench.host._replace(permission_mode="acceptEdits")
    with pytest.raises(ProviderError, match="acceptEdits") as refused:
        run(bench.create())
    assert "auto_edit" in str(refused.value.hint)
    assert bench.runs == 0


def test_output_that_another_process_holds_open_is_not_waited_for(bench: GeminiBench) -> None:
    """Also where the client gave no answer before it went."""
    bench.host = bench.host._replace(patience=SHORT)
    holds = "import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    with pytest.raises(ProviderError) as cut:
        run(bench.create(holds + "sys.exit(0)"))
    assert cut.value.kind == "cut-stream"
    assert [*processes.marked(bench.host.marks)] == []


@pytest.mark.parametrize("name", ["../../x", "", "a/b", "a\nb", "x" * 200, "\u202e"])
def test_what_is_no_id_is_not_taken_for_one(bench: GeminiBench, name: str) -> None:
    """It would become a part of paths. A client that names no session goes on under ours."""
    session = bench.create(f"init({name!r}); done()")
    if name:
        with pytest.raises(ProviderError) as refused:
            run(session)
        assert refused.value.kind == "bad-native-id"
    else:
        run(session)
    assert bench.named == []


STUB = (
    "init(ID)\n"
    "path = pathlib.Path(os.environ['HOME'], '.gemini/tmp/ws/chats/session-2026-01-02T03-05-'"
    " + ID[:8] + '.jsonl')\n"
    "context = row('c', 'user', [dict(text='<session_context>\\nToday</session_context>')])\n"
    "rows = [header(), {'$set': dict(messages=[context])}, *MORE]\n"
    "path.write_text(''.join(json.dumps(r) + '\\n' for r in rows))\n"
    "part('x'); deadline = time.monotonic() + 20\n"
    "while path.exists() and time.monotonic() < deadline and WAIT: time.sleep(0.01)\n"
    "open('stub', 'w').write(str(path.exists()))\n"
    "chat(row('u1', 'user', 'hi'), row('g1', 'gemini', 'x')); done()"
)


def test_the_stub_that_a_resume_leaves_is_taken_away_while_the_turn_runs(
    bench: GeminiBench,
) -> None:
    """As long as it stands, another start of the client deletes the session."""
    body = STUB.replace("MORE", "[]").replace("WAIT", "True").replace("init(ID)\n", "", 1)
    body = body.replace("part('x');", "init(ID); part('x');")
    run(bench.restore(body))
    assert (bench.folder / "stub").read_text() == "False"
    assert [path.name for path in bench.chats_folder.iterdir()] == [Path(CHAT).name]


def test_a_file_of_the_same_id_in_which_anything_is_said_is_never_taken_away(
    bench: GeminiBench,
) -> None:
    """Two clients may have gone on with one session."""
    body = STUB.replace("MORE", "[row('u9', 'user', 'other')]").replace("WAIT", "False")
    run(bench.restore(body))
    assert len([*bench.chats_folder.iterdir()]) == 2
