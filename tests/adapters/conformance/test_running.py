"""How a client is started, talked to and left: a stand-in for it notes what it was given."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from bench import SHORT, Bench, run, texts
from clients import ID, OTHER, Client
from commands import until

from agentsdir.adapters import processes
from agentsdir.adapters.protocol import Process, SessionSpec
from agentsdir.formats.errors import ProviderError

TURN = [("user_message", "hi"), ("assistant_text", "An answer")]
HOLDS = "import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\n"


@pytest.fixture
def bench(client: Client) -> Bench:
    """Return a place to run the stand-in of a client in."""
    return client.bench(client.home)


@pytest.fixture
def begun(bench: Bench) -> list[Process]:
    """Return the processes that `on_start` gets, where patience is short."""
    begun: list[Process] = []
    bench.host = bench.host._replace(on_start=begun.append, patience=SHORT)
    return begun


def test_a_new_session_gets_our_id_and_one_that_was_there_is_resumed(bench: Bench) -> None:
    """Settings come as one word each, whatever they begin with; what is not set is not said."""
    assert texts(run(bench.create(bench.turn))) == TURN
    arguments, _ = bench.given()
    assert f"--session-id={ID}" in arguments
    unset = ("--model", bench.mode_option, "--sys", "--resume")
    assert not any(one.startswith(unset) for one in arguments)
    shutil.rmtree(bench.home / ".gemini", ignore_errors=True)
    bench.host = bench.host._replace(permission_mode="plan")
    assert texts(run(bench.restore(bench.turn, model="-m"))) == TURN
    arguments, _ = bench.given(1)
    assert {f"--resume={ID}", "--model=-m", f"{bench.mode_option}=plan"} <= {*arguments}
    assert not any(one.startswith("--session-id") for one in arguments)
    assert bench.named == []


def test_what_another_session_left_is_not_resumed(bench: Bench) -> None:
    """A crash before a reset may keep the old session's transcript out of the log."""
    saved = {
        name.replace(ID, OTHER).replace(ID[:8], OTHER[:8]): data.replace(ID.encode(), b"other-id")
        for name, data in bench.saved.items()
    }
    run(bench.restore(bench.turn, saved))
    arguments, _ = bench.given()
    assert f"--session-id={ID}" in arguments


def test_the_environment_is_the_users_with_theirs_added_and_the_marks_last(bench: Bench) -> None:
    """What another client says to its children is not passed on."""
    bench.host = bench.host._replace(
        variables={**bench.host.variables, **bench.inherited, "A": "shell", "B": "shell"},
        environment={"B": "config", "AGENTSDIR_TURN": "config"},
    )
    run(bench.create())
    _, seen = bench.given()
    assert (seen["A"], seen["B"]) == ("shell", "config")
    assert seen["AGENTSDIR_TURN"] == bench.host.marks["AGENTSDIR_TURN"]
    assert seen["HOME"] == str(bench.home)
    assert bench.inherited.keys().isdisjoint(seen)


def test_an_interrupt_of_nothing_does_nothing(bench: Bench) -> None:
    """No program is started for it."""
    session = bench.create()
    assert [*session.interrupt()] == []
    session.stop()
    assert bench.runs == 0


def test_leaving_in_the_middle_leaves_nothing_running(bench: Bench) -> None:
    """Neither the client nor what it started in a session of its own."""
    session = bench.create(f"{HOLDS}{bench.begins}; time.sleep(600)")
    events = session.send("hi")
    assert any(event["type"] == "metadata_update" for event in events)
    # A process that has just been started shows its environment a moment later.
    until(lambda: len([*processes.marked(bench.host.marks)]) == 2, "the client and what it started")
    session.stop()
    assert [*processes.marked(bench.host.marks)] == []


@pytest.mark.parametrize("after", ["stays", "goes on talking", "leaves its output to another"])
def test_a_client_that_has_answered_is_not_waited_for(
    bench: Bench, begun: list[Process], after: str
) -> None:
    """It has some seconds, whatever it says in them; the turn has succeeded."""
    talks = f"\nwhile True:\n    {bench.chats}\n    time.sleep(0.001)\n"
    before, then = {
        "stays": ("", "\ntime.sleep(600)"),
        "goes on talking": ("", talks),
        "leaves its output to another": (HOLDS, ""),
    }[after]
    told = texts(run(bench.create(before + bench.turn + then)))
    assert told[:2] == TURN
    assert not processes.is_alive(begun[0])
    assert [*processes.marked(bench.host.marks)] == []


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
        run(bench.provider.create(change(bench.spec())))
    assert refused.value.kind == kind
    assert bench.runs == 0


def test_a_client_that_ends_in_the_middle_is_cut(bench: Bench) -> None:
    """With what it said on the side."""
    with pytest.raises(ProviderError, match="no memory") as cut:
        run(bench.create("sys.stderr.write('no memory'); sys.exit(9)"))
    assert cut.value.kind == "cut-stream"
