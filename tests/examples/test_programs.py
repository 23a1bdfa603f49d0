"""Each program of `examples/` does what its first lines say, offline."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTED = ("bot", "nightly", "plain_loop", "repl_runner", "test_assistant", "web")
Run = Callable[..., str]


def example(name: str) -> str:
    """Return the path of an example."""
    return str(EXAMPLES / f"{name}.py")


def test_each_example_is_run_by_a_test() -> None:
    """`read_agent` is tested with the specification that it is written from."""
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted([*TESTED, "read_agent"])


def test_the_bot_answers_two_users_each_in_a_session_of_their_own(run: Run) -> None:
    """A second start goes on with the same two sessions."""
    said = run(example("bot"), given="ada: good morning\nbob: hello\nada: and goodbye\n")
    lines = said.splitlines()
    assert sorted(lines) == ["@ada and goodbye", "@ada good morning", "@bob hello"]
    assert lines.index("@ada good morning") < lines.index("@ada and goodbye")

    assert run(example("bot"), given="bob: me again\n") == "@bob me again\n"

    listed = run("-m", "agentsdir.cli.main", "list", "--json")
    rows = [json.loads(line) for line in listed.splitlines()]
    turns = {row["name"]: row["counters"]["turns"] for row in rows}
    assert turns == {"bot-ada": 2, "bot-bob": 2}


def test_the_test_suite_of_an_agent_passes_without_a_model(run: Run) -> None:
    """And it fails when the agent's tool is broken."""
    suite = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "3 passed" in run(*suite, example("test_assistant"))


def test_the_test_suite_of_an_agent_notices_a_broken_tool(run: Run, tmp_path: Path) -> None:
    """It would be worth nothing else."""
    broken = Path(example("test_assistant")).read_text().replace('"shipped"', '"eaten"')
    suite = tmp_path / "test_broken.py"
    suite.write_text(broken.replace('== ["eaten"]', '== ["shipped"]'))
    said = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite), status=1)
    assert "1 failed, 2 passed" in said


def test_the_batch_reads_files_side_by_side_and_sums_them_up(run: Run, tmp_path: Path) -> None:
    """The children are gone afterwards, and the session of the night is there."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(f"all is well in {name}")
    files = [str(tmp_path / f"{name}.txt") for name in ("a", "b", "c")]
    notes = [f"{name}.txt: all is well in {name}" for name in ("a", "b", "c")]
    assert run(example("nightly"), *files).split("\n") == [*notes, ""]

    listed = run("-m", "agentsdir.cli.main", "list", "--all", "--json").splitlines()
    assert [json.loads(line)["name"] for line in listed] == ["nightly"]


def test_a_loop_of_40_lines_is_a_provider_whose_steps_are_in_the_log(run: Run) -> None:
    """The calls that the loop makes itself have their results there."""
    assert Path(example("plain_loop")).read_text().count("\n") <= 40
    assert run(example("plain_loop"), "17 * 23").endswith("That is 391.\n")

    shown = run("-m", "agentsdir.cli.main", "replay", "sums", "--json").splitlines()
    events = [json.loads(line) for line in shown]
    blocks = {one["blockId"]: one["block"] for one in events if one["type"] == "block_complete"}
    assert [(one["type"], one.get("status", one.get("output"))) for one in blocks.values()] == [
        ("user_message", None),
        ("assistant_text", None),
        ("tool_use", "success"),
        ("tool_result", 391),
        ("assistant_text", None),
    ]


@pytest.mark.feature("A-08", "A-09", "A-10")
def test_the_variables_of_the_repl_survive_in_another_process(run: Run, tmp_path: Path) -> None:
    """The runner's state is saved after each turn, and restored; no schema reaches the model."""
    codes = ["x = 6", "x * 7", "1 / 0", "weather('Riga')", "y = x", "x + y"]
    said = [run(example("repl_runner"), code) for code in codes]
    assert said == [
        "done\n",
        "42\n",
        "ZeroDivisionError: division by zero\n",
        "It rains in Riga.\n",
        "done\n",
        "12\n",
    ]

    snapshot = json.loads((tmp_path / "snapshots/repl.json").read_text())["snapshot"]
    assert (snapshot["variables"], snapshot["tick"]) == ({"x": 6, "y": 6}, 2 * len(codes))
    (log,) = tmp_path.glob(".agentsdir/agents/*/events.jsonl")
    records = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert records.count("runner.initialized") == 1
    assert records.count("runner.restored") == len(codes) - 1


def test_what_the_repl_tells_the_model(run: Run) -> None:
    """The schemas of the tools are gone, and their descriptions are in the system prompt."""
    said = run("-c", PROMPTED)
    tools, system = said.split("\n", 1)
    assert tools == "()"
    assert "- weather: Look up the weather in a city." in system


PROMPTED = """
import repl_runner
from agentsdir import AgentConfig, App, model_provider, tool

def model(request):
    print(request.tools)
    return request.system

agent = AgentConfig(provider=model_provider("m", model), tools=[tool(repl_runner.weather)])
with App(agent, runner=repl_runner.Repl()) as app:
    print(app.session().send("hello").result.response)
"""


BROWSER = """
import asyncio, json
from web import app


async def ask(method, body, path="/ada"):
    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        print(json.dumps(message, default=bytes.decode))

    asgi = {"version": "3.0", "spec_version": "2.4"}
    await app(
        {"type": "http", "asgi": asgi, "method": method, "path": path, "headers": []},
        receive,
        send,
    )


async def main():
    async with app.router.lifespan_context(app):
        await ask("POST", b"good morning")
        await ask("POST", b"and goodbye")
        await ask("DELETE", b"")
        await ask("POST", b"hello", "/" + "x" * 500)


asyncio.run(main())
"""


def test_the_web_endpoint_streams_server_sent_events(run: Run) -> None:
    """Each event of the turn is a part of the answer, and its result is the last one."""
    pytest.importorskip("starlette")
    messages = [json.loads(line) for line in run("-c", BROWSER).splitlines()]
    kinds = [dict(one["headers"])["content-type"] for one in messages if "headers" in one]
    assert kinds == ["text/event-stream; charset=utf-8"] * 2 + ["application/json"] * 2

    *parts, stopped, refused = [one["body"] for one in messages if one.get("body")]
    events = [part.split("\ndata: ") for part in parts]
    assert [name for name, _ in events].count("event: done") == 2
    assert all(data.endswith("\n\n") for _, data in events)
    assert events[0][0] == "event: block_complete"
    results = [json.loads(data) for name, data in events if name == "event: done"]
    assert [one["response"] for one in results] == ["good morning", "and goodbye"]
    assert json.loads(stopped) == {"stopped": False}
    assert json.loads(refused)["kind"] == "bad-id"
