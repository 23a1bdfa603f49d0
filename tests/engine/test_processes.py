"""Several real processes on one agent: all answered, none interleaved, and kill -9 at any time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import until

from agentsdir.engine.replay import replay
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.validate.derived import NO_MANIFEST, compare_derived
from agentsdir.formats import blocks
from agentsdir.formats.blocks import make_block
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent


def agentsdir(stage: Any, *arguments: str, site: Path | None = None) -> subprocess.Popen[str]:
    """Start the command line in a process of its own."""
    environment = {**os.environ, "AGENTSDIR_ROOT": str(stage.root), "PYTHONPATH": str(site or "")}
    return subprocess.Popen(
        [sys.executable, "-m", "agentsdir.cli.main", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # A shell starts its background jobs, such as a whole test run, with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_ends_the_turn_as_aborted_with_its_own_exit_code(
    stage: Any, number: int, code: int
) -> None:
    """Quietly: no traceback, nothing left open."""
    paths = stage.script("sleeps.jsonl")
    process = agentsdir(stage, "send", paths.id, "go")
    until(lambda: b"before the sleep" in paths.log.read_bytes(), "it sleeps")
    process.send_signal(number)
    _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (code, "")
    assert stage.events(paths)[-2:] == ["turn.aborted", "message.delivered"]
    assert stage.state(paths).open_turn is None


def test_a_reader_beside_a_writer_never_sees_damage(stage: Any) -> None:
    """Whatever moment it looks at the log and the derived files."""
    paths = stage.new()
    stage.send(paths)
    writer = agentsdir(stage, "send", paths.id, "word " * 5_000, "--json")
    looks = 0
    while writer.poll() is None:
        reading = read_agent(paths)
        assert not [finding for finding in reading.findings if finding.id != "torn-tail"]
        looks += 1
    _, complaint = writer.communicate(timeout=60)
    assert (writer.returncode, complaint) == (0, "")
    assert looks > 3


@pytest.mark.feature("C-06")
@pytest.mark.parametrize("durability", ["always", "batch"])
def test_derived_files_beside_a_writer_are_never_wrong(stage: Any, durability: str) -> None:
    """At any moment each is what the log says, or said; batched, the manifest may be to come."""
    paths = stage.new()
    (stage.root / "settings.toml").write_text(f'durability = "{durability}"\n')
    writer = agentsdir(stage, "send", paths.id, "word " * 5_000, "--record", "--json")
    looks = 0
    while writer.poll() is None:
        compared, findings = compare_derived(paths)
        assert findings == []
        wrong = [one for one in compared if one.fails]
        assert not wrong or (durability == "batch" and wrong == [NO_MANIFEST]), wrong
        looks += 1
    _, complaint = writer.communicate(timeout=60)
    assert (writer.returncode, complaint) == (0, "")
    assert looks > 3
    assert {one.outcome.status for one in compare_derived(paths)[0]} == {"same"}


@pytest.mark.feature("B-07", "C-10", "B-06")
def test_a_new_architecture_is_one_folder_on_the_path(
    stage: Any, plugin_site: Callable[..., Path]
) -> None:
    """Published by an entry point, it makes, runs, reads and is listed; nothing of ours changes."""
    site = plugin_site("tiny")

    def run(*arguments: str) -> str:
        process = agentsdir(stage, *arguments, site=site)
        answer, complaint = process.communicate(timeout=60)
        assert (process.returncode, complaint) == (0, "")
        return answer

    agent = run("new", "--provider", "tiny").strip()
    assert run("send", agent, "hello") == "tiny says hello\n"
    (paths,) = (path for path in (stage.root / "agents" / agent / "transcripts").glob("*.jsonl"))
    parsed = run("parse", "--adapter", "tiny", str(paths))
    assert '"content":"tiny says hello"' in parsed
    assert '"name":"tiny"' in run("adapters")
    assert '"type":"tiny-cli"' in run("list")
    assert "tiny says hello" in run("inspect", agent, "--runtime")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("raise RuntimeError('boom')", "boom"),
        ("import not_there_at_all", "not_there_at_all"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("ARCHITECTURE = 5", "Architecture"),
        ("", "ARCHITECTURE"),
    ],
    ids=["raises", "import fails", "exits", "wrong type", "lacks it"],
)
def test_a_broken_plug_in_is_one_line_and_no_traceback(
    stage: Any, plugin_site: Callable[..., Path], module: str, said: str
) -> None:
    """It is named, and everything that does not name it works."""
    site = plugin_site("tiny")
    (site / "plugin_tiny.py").write_text(module + "\n")
    broken = agentsdir(stage, "new", "--provider", "tiny", site=site)
    _, complaint = broken.communicate(timeout=60)
    assert broken.returncode == 2
    assert complaint.count("\n") == 1
    assert said in complaint
    assert not stage.root.exists()
    assert agentsdir(stage, "adapters", site=site).communicate(timeout=60)[1] == ""


READER_FAULTS = {
    "detect": "Reader.detect = lambda self, head, name: 1 / 0",
    "discover": "Reader.discover = lambda self, sources: [][0]",
    "parse": "Reader.parse_transcripts = lambda self, session, sink: sink.nothing",
    "exit": "import sys\nReader.parse_transcripts = lambda self, session, sink: sys.exit(0)",
}


@pytest.mark.parametrize("fault", READER_FAULTS.values(), ids=READER_FAULTS)
def test_a_reading_side_that_raises_is_an_error_that_names_the_adapter(
    stage: Any, plugin_site: Callable[..., Path], fault: str
) -> None:
    """One line and exit 1 in `parse`, and in what reads an agent's own transcripts."""
    site = plugin_site("tiny")
    made, _ = agentsdir(stage, "new", "--provider", "tiny", site=site).communicate(timeout=60)
    agent = made.strip()
    agentsdir(stage, "send", agent, "hello", site=site).communicate(timeout=60)
    (path,) = (stage.root / "agents" / agent / "transcripts").glob("*.jsonl")
    with (site / "plugin_tiny.py").open("a") as module:
        module.write(f"\n{fault}\n")

    commands = [["parse", "--adapter", "tiny", str(path)], ["inspect", agent, "--runtime"]]
    if "detect" in fault.splitlines()[-1]:  # only of a folder is it asked what is its own
        commands = [["parse", "--adapter", "tiny", str(path.parent)]]
    for command in commands:
        failed = agentsdir(stage, *command, site=site)
        out, complaint = failed.communicate(timeout=60)
        assert (failed.returncode, out, complaint.count("\n")) == (1, "", 1), complaint
        assert "the adapter 'tiny' raised" in complaint


def test_a_session_at_which_an_adapter_raises_does_not_stop_the_others(
    stage: Any, plugin_site: Callable[..., Path], tmp_path: Path
) -> None:
    """It is remarked on, exit 3."""
    site = plugin_site("tiny")
    fault = """
def parse(self, session, sink):
    if "bad" in session.transcripts[0].source.name:
        raise ValueError("bad")
    RecordedReader.parse_transcripts(self, session, sink)

Reader.parse_transcripts = parse
Reader.detect = RecordedReader.detect
"""
    with (site / "plugin_tiny.py").open("a") as module:
        module.write(fault)
    for name in ("a-bad.jsonl", "b.jsonl"):
        row = {"type": "text_delta", "conversationId": "main", "blockId": "b", "delta": "x"}
        (tmp_path / "logs").mkdir(exist_ok=True)
        block = make_block("assistant_text", "b", "main", "n", None, None, content="kept")
        event = blocks.block_complete("b", block)
        (tmp_path / "logs" / name).write_bytes(orjson.dumps(row) + b"\n" + orjson.dumps(event))

    done = agentsdir(stage, "parse", "--adapter", "tiny", str(tmp_path / "logs"), site=site)
    out, complaint = done.communicate(timeout=60)

    assert (done.returncode, '"kept"' in out) == (3, True), complaint
    assert "the adapter 'tiny' raised ValueError: bad" in complaint


def test_an_exit_that_a_provider_asks_for_in_a_turn_is_an_error(
    stage: Any, plugin_site: Callable[..., Path]
) -> None:
    """It ends no command with success; a signal still ends one."""
    site = plugin_site("tiny", body="import sys; sys.exit(0)")
    made, _ = agentsdir(stage, "new", "--provider", "tiny", site=site).communicate(timeout=60)
    sent = agentsdir(stage, "send", made.strip(), "hello", site=site)
    _, complaint = sent.communicate(timeout=60)
    assert (sent.returncode, "SystemExit" in complaint) == (14, True)


def test_plug_ins_are_not_imported_unless_they_are_named(
    stage: Any, plugin_site: Callable[..., Path]
) -> None:
    """Listing them does not run their code."""
    site = plugin_site("tiny")
    (site / "plugin_tiny.py").write_text("import os; os._exit(77)\n")
    for arguments in (["new"], ["list"], ["adapters"]):
        process = agentsdir(stage, *arguments, site=site)
        process.communicate(timeout=60)
        assert process.returncode == 0


@pytest.mark.feature("C-05", "C-06")
def test_a_recorded_turn_that_is_killed_leaves_a_stream_that_no_reader_needs(stage: Any) -> None:
    """It is never named, handed to no provider, and in no later recording's way."""
    paths = stage.script("sleeps.jsonl")
    process = agentsdir(stage, "send", paths.id, "--record", "go")
    until(lambda: b"before the sleep" in paths.log.read_bytes(), "it sleeps")
    process.kill()
    process.communicate()
    (left,) = paths.transcripts.rglob("*.stream")
    assert restore_agent(stage.services, paths).error is None
    assert "transcript.synced" not in stage.events(paths)
    # The killed turn left no transcript, so the script begins again; sleeping is instant here.
    assert stage.send(paths, "again", record=True).outcome == "completed"
    findings: list[Any] = []
    assert [event["type"] for event in replay(paths, findings.append, streams=True)] == [
        *["block_complete"] * 2,
        "metadata_update",
        *["block_complete"] * 3,
        "metadata_update",
    ]
    assert findings == []
    streams = [path for path in stage.state(paths).synced if path.endswith(".stream")]
    assert [path.rpartition("/")[2] for path in streams] == ["turn-2.stream"]
    assert left.name == "turn-1.stream"


@pytest.mark.feature("C-02")
def test_a_turn_that_another_process_ran_is_said_not_to_be_recorded(stage: Any) -> None:
    """The answer is given all the same, and the exit code is that of the turn."""
    paths = stage.new()
    with locks.hold(paths.turn, wait=0, what="the test"):
        process = agentsdir(stage, "send", paths.id, "--record", "go")
        until(
            lambda: b"message.enqueued" in paths.log.read_bytes().rpartition(b"\n")[0],
            "it is queued",
        )
        message = stage.log(paths)[1]["data"]["message_id"]
        turn = {"turn_id": stage.ids.agent()}
        start = {**turn, "message_ids": [message], "provider": "echo", "attempt": 1}
        stage.append(paths, "turn.start", start)
        done = {**turn, "response": "from elsewhere", "stop_reason": "end_turn", "usage": None}
        stage.append(paths, "turn.complete", done)
        stage.append(paths, "message.delivered", {"message_id": message, "outcome": "completed"})
    answer, complaint = process.communicate(timeout=60)
    assert (process.returncode, answer) == (0, "from elsewhere\n")
    assert complaint == "agentsdir: another process ran the turn, and kept no stream of it\n"
    assert not paths.transcripts.exists()
