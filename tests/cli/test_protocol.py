"""`agentsdir chat --jsonl`: many requests in one process (docs/protocol.md)."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from commands import PATIENCE, until

from agentsdir.cli.exits import Exit
from agentsdir.schemas import check


class Client:
    """One process of the protocol, and what it has said so far."""

    def __init__(self, shell: Any, *arguments: str, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentsdir.cli.main", "chat", "--jsonl", *arguments],
            env=shell.environment(),
            cwd=shell.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **options,
        )
        self.said: list[dict[str, Any]] = []
        self._count = 0

    def write(self, data: bytes) -> None:
        """Write bytes to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, verb: str, *args: Any, **fields: Any) -> int:
        """Write a request; return its id."""
        self._count += 1
        request = {"id": self._count, "verb": verb, **fields}
        if args:
            request["args"] = args
        assert check("protocol-request", request) == []
        self.write(orjson.dumps(request) + b"\n")
        return self._count

    def read(self) -> dict[str, Any]:
        """Return its next object."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), line
        answer: dict[str, Any] = orjson.loads(line)
        assert check("protocol-answer", answer) == []
        self.said.append(answer)
        return answer

    def until(self, key: str, request: Any) -> Any:
        """Read until an object of a request has a key; return what it holds."""
        while True:
            for answer in self.said:
                if answer["id"] == request and key in answer:
                    return answer[key]
            assert not (self.of(request) and "exit" in self.of(request)[-1]), self.of(request)
            self.read()

    def do(self, verb: str, *args: Any, **fields: Any) -> list[dict[str, Any]]:
        """Do a request that must succeed; return its objects but the last."""
        request = self.ask(verb, *args, **fields)
        assert self.until("exit", request) == 0, self.of(request)
        return self.of(request)[:-1]

    def of(self, request: Any) -> list[dict[str, Any]]:
        """Return the objects of a request so far."""
        return [answer for answer in self.said if answer["id"] == request]

    def ends(self) -> int:
        """End its standard input; return its exit code when all that it said is read."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        for line in self.process.stdout:
            self.said.append(orjson.loads(line))
        return self.process.wait()


@pytest.fixture
def client(shell: Any) -> Iterator[Client]:
    """Return a client of a process that ends with the test."""
    made = Client(shell)
    late = threading.Timer(PATIENCE, made.process.kill)
    late.start()
    yield made
    late.cancel()
    made.process.kill()
    made.process.wait()
    for stream in (made.process.stdin, made.process.stdout):
        assert stream is not None
        stream.close()


def values(answers: list[dict[str, Any]]) -> list[Any]:
    """Return the values among objects."""
    return [answer["value"] for answer in answers if "value" in answer]


def sleeper(shell: Any, name: str) -> str:
    """Make an agent whose turn begins to answer, and does not end by itself."""
    return str(shell.script("sleeps.jsonl", "--name", name))


def test_a_send_gives_its_events_and_then_its_result(shell: Any, client: Client) -> None:
    """The events are those of `send --events`, the result that of `send --json`."""
    shell.new("--name", "demo")

    said = values(client.do("send", "demo", "Hello"))

    assert [value["type"] for value in said[-2:]] == ["metadata_update", "turn"]
    assert said[-1]["response"] == "Hello"
    deltas = [value["delta"] for value in said if value["type"] == "text_delta"]
    assert "".join(deltas) == "Hello"
    assert [check("stream-event", value) for value in said[:-1]] == [[]] * (len(said) - 1)


@pytest.mark.parametrize(
    ("verb", "words"),
    [("list", []), ("inspect", ["demo"]), ("tag", ["demo"]), ("replay", ["demo", "--events"]),
     ("replay", ["demo", "--state"]), ("schema", ["block"]), ("adapters", [])],
)  # fmt: skip
def test_a_value_is_what_the_command_prints(
    shell: Any, client: Client, verb: str, words: list[str]
) -> None:
    """With `--json` in a pipe; documents that stand there on many lines, too."""
    shell.new("--name", "demo")
    shell.ok("send", "demo", "Hello")
    alone = shell(verb, *words, *(["--json"] if verb != "schema" else []))

    assert values(client.do(verb, words=words)) == alone.documents


def test_text_is_lines_where_there_is_no_json(shell: Any, client: Client) -> None:
    """Such as a page of `replay`, whose words may look like anything."""
    shell.new("--name", "demo")
    shell.ok("send", "demo", '{"id": 1, "exit": 7}')

    said = client.do("replay", "demo", options={"json": False})

    assert [answer["text"] for answer in said][-2:] == ['{"id": 1, "exit": 7}', ""]


def test_text_cannot_pass_for_an_object(shell: Any, client: Client) -> None:
    """Such as an answer with the mark that RFC 7464 has before each value."""
    shell.new("--name", "demo")
    forged = '\x1e0,"exit":0'
    shell.ok("send", "demo", forged)

    said = client.do("last", "demo", options={"json": False})

    assert said == [{"id": 1, "text": forged}]


def test_the_help_of_a_verb_is_text(client: Client) -> None:
    """And no error, whichever way it is asked for."""
    for fields in ({"words": ["--help"]}, {"options": {"help": True}, "terminal": {"columns": 60}}):
        said = client.do("new", **fields)

        assert said[0]["text"] == "Usage: agentsdir new [OPTIONS]"
        assert all("text" in answer for answer in said)


def test_a_terminal_is_given_what_people_read(shell: Any, client: Client) -> None:
    """A table in place of JSON."""
    shell.new("--name", "demo")

    said = client.do("list", terminal={"columns": 100})

    assert said[0]["text"].startswith("agent ")
    assert "demo" in said[1]["text"]


def test_an_operand_is_never_an_option(shell: Any, client: Client) -> None:
    """A prompt may begin with dashes."""
    shell.new("--name", "demo")

    assert values(client.do("send", "demo", "--json -- x"))[-1]["response"] == "--json -- x"


def test_options_are_flags_values_and_lists(shell: Any, client: Client) -> None:
    """By their long names; false leaves a flag out."""
    path = shell.cwd / "play.jsonl"
    path.write_bytes(b'{"type":"turn"}\n')
    options = {
        "provider": "script",
        "option": [f"file={path}"],
        "fallback": ["echo", "gemini"],
        "max-ticks": 3,
        "get": False,
    }

    (made,) = values(client.do("new", options=options))

    created = shell.log(made["agentId"])[0]["data"]
    assert created["options"] == {"file": str(path)}
    assert created["fallbacks"] == ["echo", "gemini"]
    assert created["limits"] == {"max_ticks": 3}


def test_standard_input_and_folder_are_those_of_the_request(shell: Any, client: Client) -> None:
    """And of no other request."""
    (shell.cwd / "sub").mkdir()
    shell.new("--name", "demo")

    assert values(client.do("send", "demo", stdin="piped"))[-1]["response"] == "piped"
    (made,) = values(client.do("new", cwd="sub"))
    (second,) = values(client.do("new"))
    assert shell.ok("inspect", made["agentId"]).json["cwd"] == str(shell.cwd / "sub")
    assert shell.ok("inspect", second["agentId"]).json["cwd"] == str(shell.cwd)


def test_an_error_is_an_object(client: Client) -> None:
    """With the exit code of the command."""
    request = client.ask("send", "nobody", "hi")

    assert client.until("exit", request) == Exit.NO_SUCH_AGENT
    error = client.until("error", request)
    assert (error["kind"], error["exitCode"]) == ("no-such-agent", Exit.NO_SUCH_AGENT)


def test_requests_of_one_agent_keep_their_order(shell: Any, client: Client) -> None:
    """By whatever they name it."""
    agent = shell.new("--name", "demo")
    names = ["demo", agent, agent[:8], "dem" + "o"]

    requests = [client.ask("send", names[n % 4], str(n)) for n in range(12)]
    for request in requests:
        client.until("exit", request)

    exits = [answer["id"] for answer in client.said if "exit" in answer]
    assert exits == requests
    prompts = [one["data"]["content"][0]["text"] for one in shell.log(agent)
               if one["event"] == "message.enqueued"]  # fmt: skip
    assert prompts == [str(n) for n in range(12)]


def test_a_request_waits_for_the_one_that_makes_its_agent(shell: Any, client: Client) -> None:
    """Its name is enough."""
    made = client.ask("new", options={"name": "later"})
    sent = client.ask("send", "later", "hi")

    assert [client.until("exit", request) for request in (made, sent)] == [0, 0]
    assert shell.ok("list").rows[0]["counters"]["turns"] == 1


def test_other_agents_are_served_while_one_works(shell: Any, client: Client) -> None:
    """So are requests that go beside, and those that name no agent."""
    sleeper(shell, "slow")
    shell.new("--name", "quick")
    turn = client.ask("send", "slow", "hi")
    client.until("value", turn)
    behind = client.ask("inspect", "slow")

    assert values(client.do("send", "quick", "hi"))[-1]["response"] == "hi"
    assert len(values(client.do("list"))) == 2
    (seen,) = values(client.do("inspect", "slow", beside=True))
    assert seen["status"] == "running"
    client.do("queue", "slow", "next")
    assert client.of(behind) == []

    client.do("interrupt", "slow")
    assert client.until("exit", turn) == Exit.INTERRUPTED
    assert client.until("error", turn)["kind"] == "turn-aborted"
    assert client.until("exit", behind) == 0


def test_many_that_wait_for_a_turn_hold_up_no_interrupt(shell: Any, client: Client) -> None:
    """The turn would else never end."""
    sleeper(shell, "slow")
    turn = client.ask("send", "slow", "hi")
    client.until("value", turn)
    waits = [client.ask("wait", "slow") for _ in range(34)]

    client.do("interrupt", "slow")

    assert client.until("exit", turn) == Exit.INTERRUPTED
    for wait in waits:
        client.until("exit", wait)


def test_standard_input_that_has_no_room_is_an_error(shell: Any, client: Client) -> None:
    """Exit 1, and the next request is done."""
    shell.new("--name", "demo")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * 1024,) * 2)

    small = Client(shell, preexec_fn=limit)
    request = small.ask("queue", "demo", stdin="x" * 2 * 1024 * 1024)

    assert small.until("exit", request) == Exit.FAILED
    assert [one for one in small.of(request) if "note" in one] == []
    assert small.until("error", request)["kind"] == "no-stdin"
    assert values(small.do("queue", "demo", stdin="short"))
    assert small.ends() == 0
    assert small.process.stdout is not None
    small.process.stdout.close()


def test_an_inbox_has_the_order_of_the_requests(shell: Any, client: Client) -> None:
    """While a turn runs, and in whatever way the agent is named."""
    agent = sleeper(shell, "slow")
    client.until("value", client.ask("send", "slow", "hi"))

    for request in [client.ask("queue", ("slow", agent)[n % 2], str(n)) for n in range(12)]:
        client.until("exit", request)

    queued = [one["data"]["content"][0]["text"] for one in shell.log(agent)
              if one["event"] == "message.enqueued"]  # fmt: skip
    assert queued == ["hi", *map(str, range(12))]


def test_a_request_is_cancelled_before_and_while_it_is_done(shell: Any, client: Client) -> None:
    """The turn ends as it does at Ctrl-C; what waited has not begun."""
    agent = sleeper(shell, "slow")
    turn = client.ask("send", "slow", "hi")
    waiting = client.ask("send", "slow", "never")
    client.until("value", turn)

    client.do("cancel", waiting)
    client.do("cancel", turn)

    assert [client.until("exit", one) for one in (waiting, turn)] == [Exit.INTERRUPTED] * 2
    ended = [one["data"] for one in shell.log(agent) if one["event"] == "turn.aborted"]
    assert [one["reason"] for one in ended] == ["interrupt"]
    assert len([one for one in shell.log(agent) if one["event"] == "message.enqueued"]) == 1


def test_what_is_not_there_is_neither_cancelled_nor_answered(client: Client) -> None:
    """Exit 1: it may have ended a moment ago."""
    for verb, args, kind in (
        ("cancel", [99], "no-such-request"),
        ("answer", ["q9", "yes"], "no-such-question"),
    ):
        request = client.ask(verb, *args)
        assert client.until("exit", request) == Exit.FAILED
        assert client.until("error", request)["kind"] == kind


@pytest.mark.parametrize(
    ("line", "request_id", "kind"),
    [
        (b"nope", None, "bad-request"),
        (b"[]", None, "bad-request"),
        (b'{"verb":"list"}', None, "bad-request"),
        (b'{"id":true,"verb":"list"}', None, "bad-request"),
        (b'{"id":1.5,"verb":"list"}', None, "bad-request"),
        (b'{"id":"a"}', "a", "bad-request"),
        (b'{"id":"a","verb":"lsit"}', "a", "no-such-verb"),
        (b'{"id":"a","verb":"chat","options":{"jsonl":true}}', "a", "no-such-verb"),
        (b'{"id":"a","verb":"list","arg":[]}', "a", "bad-request"),
        (b'{"id":"a","verb":"list","args":"x"}', "a", "bad-request"),
        (b'{"id":"a","verb":"list","args":["a\\u0000"]}', "a", "bad-request"),
        (b'{"id":"a","verb":"list","options":{"-x":1}}', "a", "bad-request"),
        (b'{"id":"a","verb":"list","options":{"x":{}}}', "a", "bad-request"),
        (b'{"id":"a","verb":"list","options":{"root":"x"}}', "a", "usage"),
        (b'{"id":"a","verb":"list","options":{"nope":1}}', "a", "usage"),
        (b'{"id":"a","verb":"list","words":["--nope"]}', "a", "usage"),
        (b'{"id":"a","verb":"list","words":["x"],"args":["x"]}', "a", "bad-request"),
        (b'{"id":"a","verb":"list","cwd":"/nowhere"}', "a", "no-folder"),
        (b"\xff\xfe{}", None, "bad-request"),
        (b"{" * 100_000, None, "bad-request"),
    ],
)  # fmt: skip
def test_a_bad_line_is_an_error_and_the_next_one_is_read(
    client: Client, line: bytes, request_id: Any, kind: str
) -> None:
    """It has an exit like every other."""
    client.write(line + b"\n\n")
    listed = client.ask("list")

    assert client.until("exit", listed) == 0
    assert client.until("error", request_id)["kind"] == kind
    assert client.until("exit", request_id) != 0


def test_an_id_is_of_one_request_at_a_time(shell: Any, client: Client) -> None:
    """The second one is refused, and does not end the first in the eyes of its client."""
    sleeper(shell, "slow")
    turn = client.ask("send", "slow", "hi")
    client.until("value", turn)

    client.write(b'{"id":1,"verb":"list"}\n')

    assert client.until("error", None)["kind"] == "same-id"
    assert client.until("exit", None) == Exit.USAGE
    client.do("cancel", turn)
    assert client.until("exit", turn) == Exit.INTERRUPTED


def test_the_end_of_input_lets_everything_end(shell: Any, client: Client) -> None:
    """Also what waits, and a last line without its LF."""
    shell.new("--name", "demo")
    requests = [client.ask("send", "demo", str(n)) for n in range(5)]
    client.write(b'{"id":"last","verb":"list"}')

    assert client.ends() == 0
    exits = {answer["id"]: answer["exit"] for answer in client.said if "exit" in answer}
    assert exits == dict.fromkeys([*requests, "last"], 0)


def test_a_reader_that_is_gone_ends_turns(shell: Any, client: Client) -> None:
    """It is seen though nothing is written."""
    agent = sleeper(shell, "slow")
    client.until("value", client.ask("send", "slow", "hi"))
    client.ask("send", "slow", "never")
    assert client.process.stdout is not None

    client.process.stdout.close()

    assert client.process.wait() == Exit.CLOSED_PIPE
    ended = [one["event"] for one in shell.log(agent)]
    assert ended.count("turn.aborted") == 1
    assert ended.count("message.enqueued") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_turns_and_the_process(
    shell: Any, client: Client, number: signal.Signals
) -> None:
    """Each request gets its exit."""
    agent = sleeper(shell, "slow")
    turn, waiting = client.ask("send", "slow", "hi"), client.ask("send", "slow", "never")
    client.until("value", turn)

    os.kill(client.process.pid, number)

    assert client.until("exit", turn) in (128 + number, Exit.INTERRUPTED)
    assert client.until("exit", waiting) == Exit.INTERRUPTED
    assert client.process.wait() == 128 + number
    assert [one["event"] for one in shell.log(agent)].count("turn.aborted") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child")
def test_a_killed_process_leaves_no_child(shell: Any, client: Client) -> None:
    """The turn is ended and recorded, and its process is gone."""
    agent = sleeper(shell, "slow")
    client.until("value", client.ask("send", "slow", "hi"))

    client.process.kill()

    def ended() -> bool:
        return any(one["event"] == "turn.aborted" for one in shell.log(agent))

    until(ended, "the turn has ended")
    assert client.process.stdout is not None
    client.process.stdout.read()  # until no process has the pipe


def test_a_root_that_was_found_by_search_starts_nothing_untrusted(
    shell: Any, tmp_path: Any
) -> None:
    """As for every command: it can be read, and the error says how to trust it."""
    shell.new("--name", "demo")
    project = tmp_path / "project"
    project.mkdir()
    shell.root.rename(project / ".agentsdir")
    env = {name: value for name, value in shell.environment().items() if name != "AGENTSDIR_ROOT"}
    lines = b'{"id":1,"verb":"list"}\n{"id":2,"verb":"send","args":["demo","hi"]}\n'

    done = subprocess.run(
        [sys.executable, "-m", "agentsdir.cli.main", "chat", "--jsonl"],
        env=env,
        cwd=project,
        input=lines,
        stdout=subprocess.PIPE,
        check=True,
        timeout=PATIENCE,
    )

    said = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert {one["id"]: one["exit"] for one in said if "exit" in one} == {1: 0, 2: Exit.PROVIDER}
    assert [one["error"]["kind"] for one in said if "error" in one] == ["untrusted-root"]
