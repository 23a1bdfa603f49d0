"""Programs that use the library: how they end, and what an `App` takes from its process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentsdir import AgentConfig, App
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.log import read_records

LONG = 30.0
HEAD = """
import os, signal, sys, threading, time
from agentsdir import AgentConfig, App, model_provider

began = threading.Event()

def slow(request):
    began.set()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and not request.is_cancelled():
        time.sleep(0.01)
    return "done"

app = App(AgentConfig(provider=model_provider("slow", slow)), root=sys.argv[1])
"""


def run_program(root: Path, body: str, seconds: float = 0.3) -> subprocess.CompletedProcess[str]:
    """Run a program whose model takes some seconds for an answer."""
    return subprocess.run(
        [sys.executable, "-c", HEAD.replace("SECONDS", str(seconds)) + body, str(root)],
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


def endings(root: Path) -> list[str]:
    """Return how the turns of the agents of a root ended."""
    layout = Layout(root)
    ends = ("turn.complete", "turn.aborted", "turn.error")
    logs = [layout.agent(agent_id).log for agent_id in layout.agent_ids()]
    return [r.event for log in logs for r in read_records(log) if r.event in ends]


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError('oh')", 1)]
)
def test_a_program_that_ends_waits_for_the_turns_that_run(
    end: str, code: int, tmp_path: Path
) -> None:
    """Their threads are no daemons: what was begun is whole in the log."""
    done = run_program(tmp_path, f"app.session().send('hi')\nbegan.wait()\n{end}\n")
    assert done.returncode == code, done.stderr
    assert endings(tmp_path) == ["turn.complete"]
    assert ("oh" in done.stderr) == (code == 1)


@pytest.mark.parametrize("where", ["began.wait(); time.sleep(50)", "execution.result", "pass"])
def test_ctrl_c_in_a_with_block_aborts_the_turns_and_ends_the_program(
    where: str, tmp_path: Path
) -> None:
    """In the block, in the wait for a result, and while the block's end waits for the turns."""
    body = (
        "def interrupt():\n"
        "    began.wait()\n"
        "    time.sleep(0.2)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "with app:\n"
        "    execution = app.session().send('hi')\n"
        f"    {where}\n"
    )
    done = run_program(tmp_path, body, seconds=50)
    assert done.returncode in (1, -signal.SIGINT), done.stderr
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert endings(tmp_path) == ["turn.aborted"]


def test_a_forked_child_ends_without_the_turns_of_its_parent(tmp_path: Path) -> None:
    """It has none of their threads; an app that it makes itself works, and leaves them alone."""
    body = (
        "with app:\n"
        "    execution = app.session('parent').send('hi')\n"
        "    began.wait()\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        with App(AgentConfig(provider='echo'), root=sys.argv[1]) as own:\n"
        "            said = own.session('child').send('from the child').result\n"
        "        print(said.response, flush=True)\n"
        "        sys.exit(7)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)\n"
        "    print(execution.result.response)\n"
    )
    done = run_program(tmp_path, body)
    assert (done.returncode, done.stdout) == (0, "from the child\n7\ndone\n"), done.stderr
    assert sorted(endings(tmp_path)) == ["turn.complete", "turn.complete"]


def test_a_program_that_is_killed_leaves_what_the_next_one_ends(tmp_path: Path) -> None:
    """The turn is closed as one that crashed, and the session goes on."""
    body = "app.session('one').send('hi')\nbegan.wait()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    assert run_program(tmp_path, body, seconds=50).returncode == -signal.SIGKILL
    done = run_program(tmp_path, "print(app.session('one').send('again').result.response)\n", 0)
    assert done.stdout == "done\n", done.stderr
    assert endings(tmp_path)[-1] == "turn.complete"


def test_a_root_is_the_same_folder_wherever_the_program_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative one is relative to where the app was made; without one it is the commands'."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    config = AgentConfig(provider="echo")
    with App(config, root="root") as app:
        first = app.session("one")
        monkeypatch.chdir(tmp_path)
        assert app.session("two").send("hi").result.response == "hi"
        assert first.send("hi").result.response == "hi"
    assert len(list((tmp_path / "here" / "root" / "agents").iterdir())) == 2

    monkeypatch.setenv("AGENTSDIR_ROOT", str(tmp_path / "by-variable"))
    with App(config) as app:
        app.session()
    assert (tmp_path / "by-variable" / "agents").is_dir()


def test_no_file_is_left_open(tmp_path: Path) -> None:
    """After turns, failures, aborts and children."""

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("this system does not list them")
    config = AgentConfig(provider="echo")
    counts: list[Any] = []
    for _ in range(3):
        with App(config, root=tmp_path, idle_timeout=60) as app:
            session = app.session("one")
            session.send("hi").wait(LONG)
            session.spawn(config, "child").wait(LONG)
            session.send([]).wait_until_done()
            app.run("alone").wait(LONG)
        counts.append(descriptors())
    assert counts[0] == counts[-1]
