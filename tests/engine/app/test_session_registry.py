"""Sessions by name or id, and which of them an app holds in memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gates import ECHO, GATED, LONG, gated, wait_for

from agentsdir import App, Call, Callbacks, FileSessionStore, Session
from agentsdir.formats.errors import AgentsdirError, SessionStateError

GETS = """
import sys
from agentsdir import AgentConfig, App

with App(AgentConfig(provider="echo"), root=sys.argv[1]) as app:
    sys.stdin.readline()
    print(app.session("shared").id)
"""


def test_twenty_threads_and_four_processes_that_ask_at_once_make_one_agent(tmp_path: Path) -> None:
    """All have the same session; those of one app have the same object."""
    command = [sys.executable, "-c", GETS, str(tmp_path)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(4)]
    with App(ECHO, root=tmp_path) as app, ThreadPoolExecutor(20) as pool:
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        sessions = list(pool.map(lambda _: app.session("shared"), range(20)))
        said = {process.communicate(timeout=LONG)[0].strip() for process in processes}

    assert len({id(session) for session in sessions}) == 1
    assert said == {sessions[0].id}
    assert [process.returncode for process in processes] == [0] * 4
    assert len(list((tmp_path / "agents").iterdir())) == 1


def test_a_session_that_takes_long_to_be_made_holds_up_no_other(tmp_path: Path) -> None:
    """As one whose store waits; two threads that ask for that one still get the same."""
    asked, go_on = threading.Event(), threading.Event()

    class Waits(FileSessionStore):
        def load(self, session_id: str) -> dict[str, Any] | None:
            if session_id == "slow":
                asked.set()
                assert go_on.wait(LONG)
            return super().load(session_id)

    with (
        App(ECHO, root=tmp_path / "root", store=Waits(tmp_path / "store")) as app,
        ThreadPoolExecutor(2) as pool,
    ):
        slow = [pool.submit(app.session, "slow") for _ in range(2)]
        assert asked.wait(LONG)
        assert app.session("quick").send("hello").wait(LONG).response == "hello"
        go_on.set()
        first, second = (one.result(LONG) for one in slow)
        assert first is second


def test_a_callback_of_a_new_session_may_wait_for_a_turn_that_makes_another(
    tmp_path: Path,
) -> None:
    """The turn works in a thread of its own."""

    def create(session: Session) -> None:
        if session.name == "main":
            session.send.use(asks)("welcome").wait(LONG)

    def asks(call: Call, next_: Any) -> Any:
        app.session("helper")
        return next_(call)

    callbacks = Callbacks(on_session_create=create)
    with App(ECHO, root=tmp_path, callbacks=callbacks) as app, ThreadPoolExecutor(1) as pool:
        session = pool.submit(app.session, "main").result(LONG)
        assert {one.name for one in app.sessions} == {"main", "helper"}
        assert session.timeline.history[-1]["content"] == "welcome"


def test_an_app_works_where_the_working_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names its root."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with App(ECHO, root=tmp_path / "root") as app:
        assert app.session().send("hello").result.response == "hello"


def test_only_a_whole_name_or_id_is_a_session_that_is_there(tmp_path: Path) -> None:
    """The beginning of an id is a name of its own, also where several begin so."""
    with App(ECHO, root=tmp_path) as app:
        first = app.session("first")
        native = first._state().session.id
        dashed = "-".join([native[:8], native[8:12], native[12:16], native[16:20], native[20:]])
        for name in (first.id, native, dashed):
            assert app.session(name) is first

        others = [app.session(first.id[:size]) for size in (8, 6)]
        assert len({first.id, *(one.id for one in others)}) == 3
        assert [one.name for one in others] == [first.id[:8], first.id[:6]]
        assert app.session().id != app.session().id
        assert app.session("first") is first
        assert len(app.sessions) == 5


@pytest.mark.parametrize("name", ["a/b", "../x", "x" * 500, "a\nb", " "])
def test_a_name_that_no_agent_can_have_is_refused(name: str, tmp_path: Path) -> None:
    """With an error of ours, and nothing is made."""
    app = App(ECHO, root=tmp_path)
    with pytest.raises(AgentsdirError):
        app.session(name)
    assert len(app.sessions) == 0
    assert not list(tmp_path.glob("agents/*"))


def test_a_closed_session_leaves_its_name_to_another_one_but_not_its_id(tmp_path: Path) -> None:
    """Also where another process closed it."""
    with App(ECHO, root=tmp_path) as app, App(ECHO, root=tmp_path) as other:
        first = app.session("name")
        other.session("name").close()
        assert first.status == "closed"
        with pytest.raises(SessionStateError):
            app.session(first.id)
        second = app.session("name")
        assert second.id != first.id
        assert second.send("hi").result.response == "hi"


def test_two_roots_have_nothing_in_common(tmp_path: Path) -> None:
    """The same name is another session."""
    with App(ECHO, root=tmp_path / "a") as one, App(ECHO, root=tmp_path / "b") as two:
        assert one.session("name").id != two.session("name").id


def test_the_session_that_was_used_longest_ago_is_put_out_and_comes_back(tmp_path: Path) -> None:
    """A use is a send, a render, a queue, or asking for it."""
    with App(ECHO, root=tmp_path, max_active=2) as app:
        first, second = app.session("1"), app.session("2")
        first.send("hi").wait(LONG)
        wait_for(lambda: not first.executions)
        third = app.session("3")
        assert [one.name for one in app.sessions] == ["1", "3"]
        second.queue("hello")
        assert second.id in app.sessions or app.session("2") is second
        assert app.session("2") is second
        assert {one.name for one in app.sessions} == {"2", "3"}
        assert third.send("x").result.response == "x"

        # What the program does not hold any more is made anew from the disk.
        known = second.id
        app.session("4")
        app.session("5")
        while third.executions:
            time.sleep(0.01)
        del second, third
        gc.collect()
        again = app.session("2")
        assert again.id == known
        assert [m["content"][0]["text"] for m in again.queued_messages] == ["hello"]


def test_a_session_that_runs_a_turn_or_a_child_stays(tmp_path: Path) -> None:
    """Although it was used longest ago, and although its time is over."""
    with gated() as gate, App(GATED, root=tmp_path, max_active=1, idle_timeout=3600) as app:
        running, parent = app.session("running"), app.session("parent")
        turn, child = running.send("turn"), parent.spawn(GATED, "child")
        gate.wait_for("turn")
        gate.wait_for("child")
        app.session("other")
        assert {one.name for one in app.sessions} == {"running", "parent", "other"}
        app.sessions._idle_timeout = 0
        swept = app.sessions.sweep()
        assert {running.id, parent.id}.isdisjoint(swept)
        gate.go()
        assert [turn.result.response, child.result.response] == ["turn", "child"]
        wait_for(lambda: not running.executions and not parent.executions)
        app.sessions.sweep()
        assert len(app.sessions) == 0
        assert running.send("again").result.response == "again"
        assert running.id in app.sessions


def test_idle_sessions_are_swept_by_a_thread(tmp_path: Path) -> None:
    """Without a call of the program."""
    with App(ECHO, root=tmp_path, idle_timeout=0.2) as app:
        session = app.session("one")
        wait_for(lambda: len(app.sessions) == 0)
        assert app.session("one") is session


SWEEPS = """
import sys
from agentsdir import AgentConfig, App

app = App(AgentConfig(provider="echo"), root=sys.argv[1], idle_timeout=600, max_active=3)
print(app.session("one").send("hi").result.response)
"""


def test_a_sweep_keeps_no_process_alive(tmp_path: Path) -> None:
    """The program ends although it never closes its app."""
    done = subprocess.run(
        [sys.executable, "-c", SWEEPS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "hi\n", "")


def test_an_app_that_is_forgotten_takes_its_sessions_and_its_sweep_with_it(tmp_path: Path) -> None:
    """It knows nothing that would hold it."""
    before = set(threading.enumerate())
    app = App(ECHO, root=tmp_path, idle_timeout=0.1)
    session = app.session("one")
    session.send("hi").wait(LONG)
    gone = [weakref.ref(app), weakref.ref(session)]
    while session.executions:
        time.sleep(0.01)
    del app, session
    wait_for(lambda: (gc.collect(), all(one() is None for one in gone))[1])
    wait_for(lambda: set(threading.enumerate()) <= before)
