"""How the client is started, heard and left: a stand-in for it tells what it was given."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters import processes
from agentsdir.adapters.contract import Host, Process, SessionSpec
from agentsdir.adapters.gemini.provider import GeminiProvider
from agentsdir.adapters.sides import ProviderSession
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.reading.reducer import Reducer
from agentsdir.formats.reading.source import Source

SESSION = "6f1b2f4e-93a7-4f0e-a0b5-0a4d6f3c1e02"
OTHER = "11111111-2222-4333-8444-555555555555"
TIME = "2026-01-02T03:04:05.000Z"
SHORT = 0.2
"""Seconds of patience in a test in which it runs out."""

# It writes down what it was given, and then does what a test wants. `chat` appends rows to the
# session's chat file as the client does, `part` says a piece of the answer.
CLIENT = """\
import json, os, pathlib, sys, time
if sys.argv[1:] == ["--version"]: sys.exit(print({version!r}))
def say(**line): print(json.dumps(dict(line, timestamp={time!r})), flush=True)
def init(name):
    say(type="init", session_id=name, model="m")
    say(type="message", role="user", content=given[2])
def part(text): say(type="message", role="assistant", content=text, delta=True)
def done(**more): say(**dict(type="result", status="success", stats={{}}, **more))
def chat(*rows):
    at = pathlib.Path(os.environ["HOME"], ".gemini/tmp/ws/chats")
    at.mkdir(parents=True, exist_ok=True)
    with open(at / f"session-2026-01-02T03-04-{{ID[:8]}}.jsonl", "a") as file:
        file.writelines(json.dumps(row) + "\\n" for row in rows)
def header(): return dict(sessionId=ID, projectHash="h", startTime={time!r}, lastUpdated={time!r})
def row(name, kind, text, **more):
    return dict(id=name, type=kind, timestamp={time!r}, content=text, **more)
given = [sys.argv[1:], dict(os.environ), sys.stdin.read()]
with open(f"given-{{len(list(pathlib.Path().glob('given-*')))}}", "w") as file:
    json.dump(given, file)
known = [a.split("=")[1] for a in sys.argv if a.startswith(("--session-id", "--resume"))]
ID = known[0] if known else {other!r}
{body}
"""


class Bench:
    """A stand-in for the client, and what is needed to open sessions with it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        # The client calls the folder of a project's chats by the project's name.
        self.folder = folder / "ws"
        self.folder.mkdir()
        self.named: list[str] = []
        self.host = Host(
            folder,
            {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
            marks={"AGENTSDIR_TURN": f"turn of {folder}"},
            named=self.named.append,
        )

    def spec(self, body: str = "done()", version: str = "0.61.0", **fields: Any) -> SessionSpec:
        """Return the spec of a session whose client does something after it has the prompt."""
        script = self.folder / "client.py"
        script.write_text(CLIENT.format(body=body, version=version, time=TIME, other=OTHER))
        host = self.host._replace(command=(sys.executable, str(script)))
        said = {
            "model": "",
            "system_prompt": "",
            "cwd": str(self.folder),
            "now": lambda: "2026-01-02T03:04:05.000000Z",
            "sleep": lambda _seconds: None,
            "new_id": lambda: OTHER,
        }
        return SessionSpec(SESSION, **{**said, "host": host, **fields})

    def given(self, run: int = 0) -> tuple[list[str], dict[str, str], str]:
        """Return the arguments, the environment and the input that the client had."""
        arguments, environment, heard = json.loads((self.folder / f"given-{run}").read_text())
        return arguments, environment, heard

    @property
    def runs(self) -> int:
        """How often the client was started for a turn."""
        return len([*self.folder.glob("given-*")])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a place to run the stand-in in."""
    return Bench(tmp_path)


def run(session: ProviderSession, content: Any = "hi") -> list[dict[str, Any]]:
    """Run one turn to its end."""
    try:
        return [*session.send(content)]
    finally:
        session.stop()


def keep(told: Iterator[dict[str, Any]], events: list[dict[str, Any]]) -> None:
    """Take events one by one, so that those before an error are there."""
    for event in told:
        events.append(event)  # noqa: PERF402, `extend` would drop them


def create(spec: SessionSpec) -> ProviderSession:
    """Open a new session."""
    return GeminiProvider().create(spec)


def blocks(events: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    """Return id, type and content of what the events come to."""
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    return [(one["id"], one["type"], one.get("content")) for one in reducer.blocks()]


TURN = (
    "init(ID); chat(header(), row('u1', 'user', 'hi')); part('An '); part('answer')\n"
    "chat(row('g1', 'gemini', 'An answer')); done()"
)
CHAT = "tmp/ws/chats/session-2026-01-02T03-04-6f1b2f4e.jsonl"


def saved(*rows: dict[str, Any]) -> dict[str, Source]:
    """Return a saved chat file of the session with some rows."""
    header = {"sessionId": SESSION, "projectHash": "h", "startTime": TIME, "lastUpdated": TIME}
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in (header, *rows))
    return {CHAT: Source(CHAT, data=lines)}


ASKED = {"id": "u0", "type": "user", "timestamp": TIME, "content": "before"}
ANSWERED = {"id": "g0", "type": "gemini", "timestamp": TIME, "content": "Before."}


def test_a_new_session_gets_our_id_and_one_that_was_there_is_resumed(bench: Bench) -> None:
    """Settings come as one word each, whatever they begin with; what is not set is not said."""
    told = blocks(run(create(bench.spec(TURN))))
    assert told == [("u1:p", "user_message", "hi"), ("g1:x", "assistant_text", "An answer")]
    arguments, _, heard = bench.given()
    assert f"--session-id={SESSION}" in arguments
    assert not any(one.startswith(("--model", "--approval")) for one in arguments)
    assert heard == "hi"
    bench.host = bench.host._replace(permission_mode="plan")
    shutil.rmtree(bench.home / ".gemini")
    spec = bench.spec(TURN, model="-m", transcripts=saved(ASKED, ANSWERED))
    told = blocks(run(GeminiProvider().restore(spec, b"anything")))
    assert told == [("u1:p", "user_message", "hi"), ("g1:x", "assistant_text", "An answer")]
    arguments, _, _ = bench.given(1)
    assert {f"--resume={SESSION}", "--model=-m", "--approval-mode=plan"} <= {*arguments}
    assert f"--session-id={SESSION}" not in arguments
    assert bench.named == []


def told_once(bench: Bench, body: str) -> None:
    """Resume the session that was saved; nothing that the turn says may be told from stdout."""
    spec = bench.spec(body, transcripts=saved(ASKED, ANSWERED))
    told = blocks(run(GeminiProvider().restore(spec, b"")))
    assert told == [("u1:p", "user_message", "hi"), ("g1:x", "assistant_text", "An answer")]


def test_a_copy_in_another_project_is_not_taken_for_the_file_of_the_turn(bench: Bench) -> None:
    """Not even a later one: the client looks in the folder of its own project alone."""
    other = bench.home / ".gemini/tmp/other/chats" / Path(CHAT).name
    other.parent.mkdir(parents=True)
    other.write_bytes(saved(ASKED, ANSWERED)[CHAT].read())
    os.utime(other, (4e9, 4e9))
    told_once(bench, TURN)


def test_a_folder_that_the_client_copies_as_it_starts_is_followed_where_it_went(
    bench: Bench,
) -> None:
    """A client from 0.29 on does that with the one of an older client."""
    projects = bench.home / ".gemini/tmp"
    old = projects / sha256(os.fsencode(bench.folder.resolve())).hexdigest()
    (old / "chats").mkdir(parents=True)
    (old / "chats" / Path(CHAT).name).write_bytes(saved(ASKED, ANSWERED)[CHAT].read())
    copies = (
        "import shutil\n"
        f"new = shutil.copytree({str(old)!r}, {str(projects / 'ws')!r})\n"
        "pathlib.Path(new, '.project_root').write_text(os.getcwd())\n"
    )
    told_once(bench, copies + TURN)


def test_a_client_that_takes_no_id_says_which_it_chose_before_anything_else(bench: Bench) -> None:
    """Whoever logs it has it before the first block."""
    spec = bench.spec(TURN, version="0.38.2")
    session = create(spec)
    events = session.send("hi")
    next(events)
    assert bench.named == [OTHER]
    list(events)
    session.stop()
    arguments, _, _ = bench.given()
    assert not any(one.startswith(("--session-id", "--resume")) for one in arguments)
    assert [file.role for file in session.transcripts()] == ["main"]


def test_a_session_without_an_answer_begins_anew_under_another_id(bench: Bench) -> None:
    """The client neither resumes it nor lets another have its id. The prompt is told once."""
    refuses = (
        "if any(a.startswith('--resume') for a in sys.argv):\n"
        "    print('Error resuming session: none', file=sys.stderr); sys.exit(42)\n"
    )
    spec = bench.spec(refuses + TURN, transcripts=saved(ASKED))
    told = blocks(run(GeminiProvider().restore(spec, b"")))
    assert [kind for _, kind, _ in told] == ["user_message", "assistant_text"]
    assert bench.named == [OTHER]
    assert f"--session-id={OTHER}" in bench.given(1)[0]


def test_a_session_with_an_answer_that_cannot_be_resumed_is_not_begun_anew(bench: Bench) -> None:
    """It would go on without its context, in silence."""
    refuses = "print('Error resuming session: none', file=sys.stderr); sys.exit(42)"
    spec = bench.spec(refuses, transcripts=saved(ASKED, ANSWERED))
    with pytest.raises(ProviderError) as refused:
        run(GeminiProvider().restore(spec, b""))
    assert refused.value.kind == "no-conversation"
    assert bench.runs == 1
    assert bench.named == []


def test_the_environment_is_the_users_with_theirs_added_and_the_marks_last(bench: Bench) -> None:
    """What another client says to its children is not passed on."""
    bench.host = bench.host._replace(
        variables={**bench.host.variables, "GEMINI_CLI": "1", "A": "shell", "B": "shell"},
        environment={"B": "config", "AGENTSDIR_TURN": "config"},
    )
    run(create(bench.spec()))
    _, seen, _ = bench.given()
    assert (seen["A"], seen["B"]) == ("shell", "config")
    assert seen["AGENTSDIR_TURN"] == bench.host.marks["AGENTSDIR_TURN"]
    assert seen["HOME"] == str(bench.home)
    assert "GEMINI_CLI" not in seen


def test_a_system_prompt_is_a_file_of_ours_that_goes_with_the_turn(bench: Bench) -> None:
    """Only its owner can read it."""
    reads = (
        "said = pathlib.Path(os.environ['GEMINI_SYSTEM_MD'])\n"
        "with open('instructions', 'w') as file:\n"
        "    json.dump([said.read_text(), said.stat().st_mode & 0o777], file)\n"
        "done()"
    )
    run(create(bench.spec(reads, system_prompt="-be brief\n")))
    assert json.loads((bench.folder / "instructions").read_text()) == ["-be brief\n", 0o600]
    assert not os.path.exists(bench.given()[1]["GEMINI_SYSTEM_MD"])  # noqa: PTH110


def test_a_system_prompt_that_cannot_be_written_is_an_error_of_ours(bench: Bench) -> None:
    """And nothing runs without it."""
    bench.host = bench.host._replace(environment={"TMPDIR": str(bench.folder / "gone")})
    with pytest.raises(ProviderError, match="gone") as refused:
        run(create(bench.spec(system_prompt="be brief")))
    assert refused.value.kind == "no-folder"
    assert bench.runs == 0


def test_a_prompt_in_parts_is_typed_as_one_and_an_image_is_refused(bench: Bench) -> None:
    """The client reads text; a file it reads by its name."""
    text = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    run(create(bench.spec()), text)
    assert bench.given()[2] == "one\n\ntwo"
    with pytest.raises(ProviderError, match="image") as refused:
        run(create(bench.spec()), [*text, {"type": "image", "source": {}}])
    assert refused.value.kind == "text-only"
    with pytest.raises(ProviderError) as refused:
        run(create(bench.spec()), "x" * (8 * 1024 * 1024 + 1))
    assert refused.value.kind == "prompt-too-long"
    assert bench.runs == 1


def test_what_was_said_before_an_interrupt_is_kept_from_the_output(bench: Bench) -> None:
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
    session = create(bench.spec(body))
    events: list[dict[str, Any]] = []
    for event in session.send("hi"):
        events.append(event)
        if (event.get("block") or {}).get("type") == "tool_use":
            break
    events += session.interrupt()
    session.stop()
    assert [one[1:] for one in blocks(events)] == [
        ("user_message", "hi"),
        ("assistant_text", "So far"),
        ("tool_use", None),
    ]
    begun = {e["blockId"] for e in events if e["type"] == "block_start"}
    assert begun <= {e["blockId"] for e in events if e["type"] == "block_complete"}


def test_an_interrupt_of_nothing_does_nothing(bench: Bench) -> None:
    """No program is started for it."""
    session = create(bench.spec())
    assert [*session.interrupt()] == []
    session.stop()
    assert bench.runs == 0


def test_leaving_in_the_middle_leaves_nothing_running(bench: Bench) -> None:
    """Neither the client nor what it started in a session of its own."""
    spec = bench.spec(
        "import subprocess\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "init(ID); time.sleep(600)"
    )
    session = create(spec)
    next(session.send("hi"))
    assert len([*processes.marked(bench.host.marks)]) == 2
    session.stop()
    assert [*processes.marked(bench.host.marks)] == []


TALKS_ON = (
    "\nwhile True:\n"
    "    say(type='message', role='user', content='and another thing')\n"
    "    time.sleep(0.001)\n"
)


def test_a_client_that_has_given_its_result_and_goes_on_talking_is_ended(bench: Bench) -> None:
    """What it says does not move the end of its patience; its answer is the turn's."""
    begun: list[Process] = []
    bench.host = bench.host._replace(patience=SHORT)
    spec = bench.spec(TURN + TALKS_ON)
    spec = spec._replace(host=spec.host._replace(began=begun.append))
    told = run(create(spec))
    assert [one[1] for one in blocks(told)][:2] == ["user_message", "assistant_text"]
    assert not processes.is_alive(begun[0])


def test_a_client_that_has_answered_and_stays_is_not_waited_for(bench: Bench) -> None:
    """After its result it has some seconds."""
    bench.host = bench.host._replace(patience=SHORT)
    begun: list[Process] = []
    spec = bench.spec(TURN + "\ntime.sleep(600)")
    told = run(create(spec._replace(host=spec.host._replace(began=begun.append))))
    assert [one[1] for one in blocks(told)] == ["user_message", "assistant_text"]
    assert not processes.is_alive(begun[0])


def test_the_prompt_of_a_client_that_never_mentions_it_is_told(bench: Bench) -> None:
    """It was refused before it began, or interrupted; and where it is mentioned, that is it."""
    session = create(bench.spec("print('no login', file=sys.stderr); sys.exit(41)"))
    told = session.send("hi")
    assert [one[1:] for one in blocks([next(told)])] == [("user_message", "hi")]
    with pytest.raises(ProviderError):
        next(told)
    session.stop()
    session = create(bench.spec("init(ID); sys.exit(9)"))
    told = session.send("hi")
    events: list[dict[str, Any]] = []
    with pytest.raises(ProviderError):
        keep(told, events)
    session.stop()
    assert [one[1:] for one in blocks(events)] == [("user_message", "hi")]


def test_a_mode_that_the_client_has_not_is_refused_before_anything_runs(bench: Bench) -> None:
    """The client would answer with all the arguments that there are."""
    bench.host = bench.host._replace(permission_mode="acceptEdits")
    with pytest.raises(ProviderError, match="acceptEdits") as refused:
        run(create(bench.spec()))
    assert "auto_edit" in str(refused.value.hint)
    assert bench.runs == 0


def test_output_that_another_process_holds_open_is_not_waited_for(bench: Bench) -> None:
    """Whether the client gave its answer before it went, or not."""
    bench.host = bench.host._replace(patience=SHORT)
    holds = "import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    told = run(create(bench.spec(holds + TURN)))
    assert [one[1] for one in blocks(told)] == ["user_message", "assistant_text"]
    with pytest.raises(ProviderError) as cut:
        run(create(bench.spec(holds + "sys.exit(0)")))
    assert cut.value.kind == "cut-stream"
    assert [*processes.marked(bench.host.marks)] == []


@pytest.mark.parametrize("name", ["../../x", "", "a/b", "a\nb", "x" * 200, "\u202e"])
def test_what_is_no_id_is_not_taken_for_one(bench: Bench, name: str) -> None:
    """It would become a part of paths. A client that names no session goes on under ours."""
    session = create(bench.spec(f"init({name!r}); done()"))
    if name:
        with pytest.raises(ProviderError) as refused:
            run(session)
        assert refused.value.kind == "bad-native-id"
    else:
        run(session)
    assert bench.named == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda spec: spec._replace(cwd="/nowhere/at/all"), "no-folder"),
        (lambda spec: spec._replace(host=spec.host._replace(command=("no-such",))), "no-client"),
        (lambda spec: spec._replace(host=spec.host._replace(command=())), "no-client"),
    ],
)
def test_what_is_missing_is_named_before_anything_runs(
    bench: Bench, change: Callable[[SessionSpec], SessionSpec], kind: str
) -> None:
    """The program, or the folder."""
    with pytest.raises(ProviderError) as refused:
        run(create(change(bench.spec())))
    assert refused.value.kind == kind
    assert bench.runs == 0


def test_a_client_that_ends_in_the_middle_is_cut(bench: Bench) -> None:
    """With what it said on the side."""
    with pytest.raises(ProviderError, match="no memory") as cut:
        run(create(bench.spec("sys.stderr.write('no memory'); sys.exit(9)")))
    assert cut.value.kind == "cut-stream"


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


def test_the_stub_that_a_resume_leaves_is_taken_away_while_the_turn_runs(bench: Bench) -> None:
    """As long as it stands, another start of the client deletes the session."""
    body = STUB.replace("MORE", "[]").replace("WAIT", "True").replace("init(ID)\n", "", 1)
    body = body.replace("part('x');", "init(ID); part('x');")
    spec = bench.spec(body, transcripts=saved(ASKED, ANSWERED))
    run(GeminiProvider().restore(spec, b""))
    assert (bench.folder / "stub").read_text() == "False"
    chats = bench.home / ".gemini/tmp/ws/chats"
    assert [path.name for path in chats.iterdir()] == [Path(CHAT).name]


def test_a_file_of_the_same_id_in_which_anything_is_said_is_never_taken_away(bench: Bench) -> None:
    """Two clients may have gone on with one session."""
    body = STUB.replace("MORE", "[row('u9', 'user', 'other')]").replace("WAIT", "False")
    spec = bench.spec(body, transcripts=saved(ASKED, ANSWERED))
    run(GeminiProvider().restore(spec, b""))
    assert len([*(bench.home / ".gemini/tmp/ws/chats").iterdir()]) == 2
