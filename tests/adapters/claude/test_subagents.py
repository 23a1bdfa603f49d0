"""Subagents are threads of their own, tied to their calls as surely as the files allow."""

import json
from pathlib import Path
from typing import Any

import pytest
from claude_support import (
    SESSION,
    call,
    lines,
    of_type,
    parse,
    parse_alone,
    reader,
    result,
    said,
    user,
)

from agentsdir.adapters.protocol import SessionFiles
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

pytestmark = pytest.mark.feature("B-04")


def _child(agent: str, prompt: str = "look", answer: str = "seen") -> bytes:
    both = {"isSidechain": True, "agentId": agent}
    first = {**user(f"{agent}-u", None, prompt), **both}
    return lines(first, {**said(f"{agent}-a", f"{agent}-u", answer), **both})


def _main(*calls: dict[str, Any], **outcome: Any) -> bytes:
    answered = [user(f"r{c['id']}", "a1", [result(c["id"], "seen")], **outcome) for c in calls]
    return lines(user("u1", None, "go"), said("a1", "u1", *calls), *answered)


def _task(tool_use_id: str, prompt: str = "look", description: str = "d") -> dict[str, Any]:
    return call(tool_use_id, "Task", prompt=prompt, description=description, subagent_type="scout")


def test_a_call_of_the_agent_tool_is_one_subagent_block() -> None:
    """It stands in the place of the tool_use, and its result is folded into it."""
    outcome = {"status": "completed", "agentId": "abc1", "totalDurationMs": 12}
    sink = parse(_main(_task("t1"), toolUseResult=outcome), _child("abc1"))
    (block,) = of_type(sink, "subagent")
    assert block["id"] == "a1:0"
    assert (block["subagentId"], block["name"], block["input"]) == ("abc1", "scout", "look")
    assert (block["status"], block["output"], block["durationMs"]) == ("success", "seen", 12)
    assert block["link"] == {"method": "result", "confidence": "exact"}
    assert of_type(sink, "tool_use") == of_type(sink, "tool_result") == []
    assert sink.tally.folded == 1


def test_a_thread_opens_and_closes_with_a_system_block() -> None:
    """Their ids come from the agent's id, and they tell how it ended."""
    outcome = {"status": "completed", "agentId": "abc1"}
    sink = parse(_main(_task("t1"), toolUseResult=outcome), _child("abc1"))
    thread = [block for block in sink.blocks() if block["conversationId"] == "abc1"]
    assert [block["id"] for block in thread] == ["abc1:start", "abc1-u:0", "abc1-a:0", "abc1:end"]
    assert (thread[0]["type"], thread[-1]["type"]) == ("system", "system")
    assert thread[0]["message"] == "Subagent scout started"
    assert thread[-1]["message"] == "Subagent scout completed"
    assert sink.conversations["abc1"].parent == "main"


def test_a_call_without_its_file_has_no_thread() -> None:
    """The id is known from the result; nothing is made up for what was not read."""
    sink = parse(_main(_task("t1"), toolUseResult={"status": "completed", "agentId": "abc1"}))
    assert of_type(sink, "subagent")[0]["subagentId"] == "abc1"
    assert list(sink.conversations) == ["main"]


def test_an_unanswered_call_is_pending() -> None:
    """The client was killed meanwhile: no id, no link."""
    sink = parse(lines(said("a1", None, _task("t1"))))
    (block,) = of_type(sink, "subagent")
    assert (block["subagentId"], block["status"]) == (None, "pending")
    assert block["link"] == {"method": "none", "confidence": "none"}


def test_a_failed_call_is_an_error() -> None:
    """An error result has no details, only a text."""
    main = lines(
        said("a1", None, _task("t1")),
        user("r1", "a1", [result("t1", "no", is_error=True)], toolUseResult="Error: no"),
    )
    (block,) = of_type(parse(main), "subagent")
    assert (block["status"], block["output"]) == ("error", "no")


@pytest.mark.parametrize(("word", "status"), [("completed", "success"), ("failed", "error")])
def test_a_background_agent_runs_until_its_notification(word: str, status: str) -> None:
    """The call's own result only says that it was launched."""
    launched = {"status": "async_launched", "agentId": "abc1", "isAsync": True}
    main = _main(_task("t1"), toolUseResult=launched)
    (running,) = of_type(parse(main), "subagent")
    assert running["status"] == "running"
    assert "output" not in running
    notice = (
        f"<task-notification><task-id>abc1</task-id><tool-use-id>t1</tool-use-id>"
        f"<status>{word}</status><summary>s</summary><result>the answer</result>"
        "<usage><duration_ms>7</duration_ms></usage></task-notification>"
    )
    sink = parse(main + lines(user("n1", "rt1", notice, origin={"kind": "task-notification"})))
    (block,) = of_type(sink, "subagent")
    assert (block["status"], block["output"], block["durationMs"]) == (status, "the answer", 7)
    assert of_type(sink, "system")[0]["message"] == "s"


def _link(sink: ParseSink, name: str = "abc1") -> tuple[str, str] | None:
    link = sink.conversations[name].link
    return None if link is None else (link.method, link.confidence)


def test_links_go_from_sure_to_guessed() -> None:
    """Each way of tying a thread to its call has its method and its confidence."""
    progress = {
        **user("p1", "a1", None), "type": "progress", "parentToolUseID": "t1",
        "data": {"type": "agent_progress", "agentId": "abc1"},
    }  # fmt: skip
    trailer = [{"type": "text", "text": "seen"}, {"type": "text", "text": "agentId: abc1 (x)"}]
    opened = lines(said("a1", None, _task("t1")))
    assert _link(parse(opened + lines(progress), _child("abc1"))) == ("progress", "exact")
    told = lines(user("r1", "a1", [result("t1", trailer)]))
    assert _link(parse(opened + told, _child("abc1"))) == ("trailer", "likely")
    assert of_type(parse(opened + told), "subagent")[0]["output"] == "seen"
    assert _link(parse(_main(_task("t1")), _child("abc1"))) == ("prompt", "likely")
    two = parse(_main(_task("t1"), _task("t2")), _child("abc1"), _child("abc2"))
    assert _link(two) == _link(two, "abc2") == ("order", "guess")
    assert [block["subagentId"] for block in of_type(two, "subagent")] == ["abc1", "abc2"]


def test_a_sidecar_ties_by_call_id_or_else_by_description(tmp_path: Path) -> None:
    """What stands beside the child's file is better than any text."""
    main = tmp_path / f"{SESSION}.jsonl"
    main.write_bytes(_main(_task("t1", "other"), _task("t2", "other", "unlike")))
    side = tmp_path / SESSION / "subagents"
    side.mkdir(parents=True)
    (side / "agent-abc1.jsonl").write_bytes(_child("abc1"))
    for meta, method in (
        ({"toolUseId": "t2", "agentType": "scout"}, ("meta", "exact")),
        ({"description": "unlike"}, ("description", "likely")),
        ({"description": "nowhere"}, ("none", "none")),
        ([], ("none", "none")),
    ):
        (side / "agent-abc1.meta.json").write_text(json.dumps(meta))
        sink = _parse_folder(tmp_path)
        assert _link(sink) == method


def _parse_folder(folder: Path) -> ParseSink:
    paths = sorted(folder.rglob("*.jsonl"))
    (files,) = reader().discover([Source(str(path), path=path) for path in paths])
    sink = ParseSink()
    reader().parse_transcripts(files, sink)
    return sink


def test_a_thread_without_a_call_is_shown_and_reported() -> None:
    """It hangs from the main thread, with an info."""
    sink = parse(lines(user("u1", None, "go")), _child("abc1"))
    assert _link(sink) == ("none", "none")
    assert sink.conversations["abc1"].parent == "main"
    assert [finding.id for finding in sink.findings] == ["orphan-subagent"]


@pytest.mark.parametrize(
    ("agent", "prompt", "purpose"),
    [("acompact-1f", "summarise", "compaction"), ("abc1", "Warmup", "warm-up")],
)
def test_threads_the_client_starts_for_itself_are_no_orphans(
    agent: str, prompt: str, purpose: str
) -> None:
    """No call started them, so nothing is missing."""
    sink = parse(lines(user("u1", None, "go")), _child(agent, prompt))
    assert sink.findings == []
    assert _link(sink, agent) == (purpose, "none")


def test_a_nested_agent_hangs_from_the_agent_that_called_it() -> None:
    """Its call stands in that agent's thread."""
    middle = {"isSidechain": True, "agentId": "abc1"}
    outer = lines(
        {**user("m-u", None, "look"), **middle},
        {**said("m-a", "m-u", _task("t2", "deeper")), **middle},
        {**user("m-r", "m-a", [result("t2")], toolUseResult={"agentId": "abc2"}), **middle},
    )
    main = _main(_task("t1"), toolUseResult={"status": "completed", "agentId": "abc1"})
    sink = parse(main, outer, _child("abc2", "deeper"))
    assert sink.conversations["abc2"].parent == "abc1"
    assert sink.conversations["abc1"].parent == "main"
    assert sink.findings == []


def test_inline_sidechains_are_split_by_root() -> None:
    """Old clients wrote parallel agents into the main file, interleaved, without ids."""
    side = {"isSidechain": True}
    main = lines(
        user("u1", None, "go"),
        said("a1", "u1", _task("t1", "left"), _task("t2", "right")),
        {**user("l1", None, "left"), **side},
        {**user("r1", None, "right"), **side},
        {**said("l2", "l1", "L"), **side},
        {**said("r2", "r1", "R"), **side},
        user("x1", "a1", [result("t1", "L")]),
        user("x2", "a1", [result("t2", "R")]),
    )
    sink = parse(main)
    assert [b["subagentId"] for b in of_type(sink, "subagent")] == ["sidechain-l1", "sidechain-r1"]
    texts = {b["conversationId"]: b["content"] for b in of_type(sink, "assistant_text")}
    assert texts == {"sidechain-l1": "L", "sidechain-r1": "R"}
    assert _link(sink, "sidechain-l1") == ("prompt", "likely")


def test_a_child_alone_is_a_session_of_its_own() -> None:
    """Its conversation is the agent, and there is no main one."""
    sink = parse_alone(_child("abc1"))
    assert list(sink.conversations) == ["abc1"]
    assert sink.conversations["abc1"].parent is None
    assert sink.findings == []


def test_children_stand_behind_their_main_transcript_once(tmp_path: Path) -> None:
    """In both layouts; a child of another session is not mixed in."""
    main = tmp_path / f"{SESSION}.jsonl"
    main.write_bytes(_main(_task("t1")))
    (tmp_path / "agent-flat.jsonl").write_bytes(_child("flat"))
    other = _child("other").replace(SESSION.encode(), b"11111111-0000-4000-8000-000000000001")
    (tmp_path / "agent-other.jsonl").write_bytes(other)
    deep = tmp_path / SESSION / "subagents" / "workflows" / "run1"
    deep.mkdir(parents=True)
    (deep / "agent-deep.jsonl").write_bytes(_child("deep"))
    paths = sorted(tmp_path.rglob("*.jsonl"))
    found = reader().discover([Source(str(path), path=path) for path in paths])
    names = [[Path(t.source.name).stem for t in files.transcripts] for files in found]
    assert sorted(names) == [[SESSION, "agent-deep", "agent-flat"], ["agent-other"]]
    assert [t.role for t in found[0].transcripts] == ["main", "subagent", "subagent"] or [
        t.role for t in found[1].transcripts
    ] == ["main", "subagent", "subagent"]


def test_a_file_alone_is_read_without_what_stands_beside_it(tmp_path: Path) -> None:
    """So a pipe gives the same as a path."""
    main = tmp_path / f"{SESSION}.jsonl"
    main.write_bytes(_main(_task("t1")))
    side = tmp_path / SESSION / "subagents"
    side.mkdir(parents=True)
    child = side / "agent-abc1.jsonl"
    child.write_bytes(_child("abc1"))
    (side / "agent-abc1.meta.json").write_text('{"agentType":"scout"}')
    for path in (main, child):
        (files,) = reader().discover([Source("-", path=path)])
        assert files == SessionFiles((files.transcripts[0],))
        assert files.transcripts[0].sidecar is None
        sink = ParseSink()
        reader().parse_transcripts(files, sink)
        assert list(sink.lines()) == list(parse_alone(path.read_bytes()).lines())


def test_the_agents_of_a_workflow_are_listed_with_their_purpose(tmp_path: Path) -> None:
    """A script started them, so no call is missing; its journal is no transcript."""
    main = tmp_path / f"{SESSION}.jsonl"
    main.write_bytes(lines(user("u1", None, "go")))
    run = tmp_path / SESSION / "subagents" / "workflows" / "run1"
    run.mkdir(parents=True)
    (run / "agent-abc1.jsonl").write_bytes(_child("abc1"))
    (run / "journal.jsonl").write_text('{"type":"started","key":"k","agentId":"abc1"}\n')
    assert not reader().detect((run / "journal.jsonl").read_bytes(), "journal.jsonl")
    (run / "journal.jsonl").unlink()
    sink = _parse_folder(tmp_path)
    assert _link(sink) == ("workflow", "none")
    assert sink.conversations["abc1"].parent == "main"
    assert sink.findings == []


@pytest.mark.parametrize("nested", [False, True])
def test_the_agents_of_a_workflow_hang_from_its_call(tmp_path: Path, nested: bool) -> None:
    """The call's result names the run, and so does the folder; the call may be an agent's own."""
    launched = {"status": "async_launched", "taskId": "w1", "runId": "wf_one"}
    start = call("t1", "Workflow", script="…")
    own = {"isSidechain": True, "agentId": "abc9"} if nested else {}
    rows = lines(
        {**user("w-u", None, "look"), **own},
        {**said("w-a", "w-u", start), **own},
        {**user("w-r", "w-a", [result("t1")], toolUseResult=launched), **own},
    )
    side = tmp_path / SESSION / "subagents"
    for run in ("wf_one", "wf_two"):
        (side / "workflows" / run).mkdir(parents=True)
        (side / "workflows" / run / f"agent-a{run}.jsonl").write_bytes(_child(f"a{run}"))
    main = rows
    if nested:
        main = _main(_task("t0"), toolUseResult={"status": "completed", "agentId": "abc9"})
        (side / "agent-abc9.jsonl").write_bytes(rows)
    (tmp_path / f"{SESSION}.jsonl").write_bytes(main)
    sink = _parse_folder(tmp_path)
    agent, other = sink.conversations["awf_one"], sink.conversations["awf_two"]
    assert agent.parent == ("abc9" if nested else "main")
    assert (agent.link, other.link) == (("workflow", "exact"), ("workflow", "none"))
    marks = [block for block in sink.blocks() if block["conversationId"] == "awf_one"]
    for mark in (marks[0], marks[-1]):
        assert mark["metadata"]["toolUseId"] == "t1"
    assert sink.findings == []


def test_a_nested_agent_is_tied_by_its_sidecar(tmp_path: Path) -> None:
    """All agents lie in one folder; the call stands in the file of the one that made it."""
    main = tmp_path / f"{SESSION}.jsonl"
    main.write_bytes(_main(_task("t1"), toolUseResult={"status": "completed", "agentId": "abc1"}))
    side = tmp_path / SESSION / "subagents"
    side.mkdir(parents=True)
    both = {"isSidechain": True, "agentId": "abc1"}
    outer = lines(
        {**user("m-u", None, "look"), **both}, {**said("m-a", "m-u", _task("t2", "deeper")), **both}
    )
    (side / "agent-abc1.jsonl").write_bytes(outer)
    (side / "agent-abc2.jsonl").write_bytes(_child("abc2", "anything"))
    (side / "agent-abc2.meta.json").write_text('{"toolUseId":"t2","parentAgentId":"abc1"}')
    sink = _parse_folder(tmp_path)
    assert _link(sink, "abc2") == ("meta", "exact")
    assert sink.conversations["abc2"].parent == "abc1"
    (side / "agent-abc2.meta.json").write_text('{"toolUseId":"gone","parentAgentId":"abc1"}')
    sink = _parse_folder(tmp_path)
    assert _link(sink, "abc2") == ("none", "none")
    assert sink.conversations["abc2"].parent == "abc1"
    assert [finding.id for finding in sink.findings] == ["orphan-subagent"]


@pytest.mark.parametrize(
    ("agent", "purpose"),
    [("aside_question-1f", "side-question"), ("aprompt_suggestion-1f", "prompt-suggestion")],
)
def test_the_clients_own_questions_are_no_subagents_that_lost_their_call(
    agent: str, purpose: str
) -> None:
    """They are listed with what they are for."""
    sink = parse(lines(user("u1", None, "go")), _child(agent))
    assert _link(sink, agent) == (purpose, "none")
    assert sink.findings == []


def test_an_agent_elsewhere_is_known_by_its_task() -> None:
    """It leaves no transcript here; its notification ends it."""
    launched = {"status": "remote_launched", "taskId": "r1", "sessionUrl": "https://x.invalid/1"}
    main = _main(_task("t1"), toolUseResult=launched)
    (running,) = of_type(parse(main), "subagent")
    assert (running["subagentId"], running["status"]) == ("r1", "running")
    notice = (
        "<task-notification><task-id>r1</task-id><status>completed</status></task-notification>"
    )
    (ended,) = of_type(parse(main + lines(user("n1", "rt1", notice))), "subagent")
    assert ended["status"] == "success"


def test_tokens_of_agents_are_counted_once() -> None:
    """The copies in progress rows, and the sum in the call's result, are not added."""
    progress = {
        **user("p1", "a1", None), "type": "progress", "parentToolUseID": "t1",
        "data": {"type": "agent_progress", "agentId": "abc1", "message": said("abc1-a", None, "x")},
    }  # fmt: skip
    outcome = {"status": "completed", "agentId": "abc1", "totalTokens": 999}
    main = lines(user("u1", None, "go"), said("a1", "u1", _task("t1")), progress,
                 user("r1", "a1", [result("t1")], toolUseResult=outcome))  # fmt: skip
    assert parse(main, _child("abc1")).usage()["totalTokens"] == 6


def _aside(agent: str, *rows: dict[str, Any]) -> bytes:
    return lines(*({**one, "isSidechain": True, "agentId": agent} for one in rows))


def test_rows_that_an_agents_file_repeats_count_once() -> None:
    """A compaction's, a forked agent's and a side question's begin with their parent's rows."""
    talk = (user("u1", None, "go"), said("a1", "u1", "long"))
    copies = _aside("acompact-1", *talk, user("u2", "a1", "Summarise."), said("a2", "u2", "short"))
    other = _aside("aside_question-1", *talk, user("u3", "a1", "by the way"), said("a3", "u3", "b"))
    sink = parse(lines(*talk), copies, other)
    ids = [block["id"] for block in sink.blocks("all")]
    assert len(ids) == len(set(ids))
    assert [b["content"] for b in of_type(sink, "assistant_text")] == ["long", "short", "b"]
    assert {name: one.usage["totalTokens"] for name, one in sink.conversations.items()} == {
        "main": 3,
        "acompact-1": 3,
        "aside_question-1": 3,
    }
    assert sink.usage()["totalTokens"] == 9
    assert sink.tally.folded == 4


def test_what_two_agents_files_share_stands_in_the_first() -> None:
    """A fork of an agent begins with that agent's rows."""
    talk = (user("u2", None, "look"), said("a2", "u2", "seen"))
    more = (user("u3", "a2", "on"), said("a3", "u3", "more"))
    sink = parse(lines(user("u1", None, "go")), _aside("b1", *talk), _aside("b2", *talk, *more))
    threads = [(b["conversationId"], b["id"]) for b in of_type(sink, "assistant_text")]
    assert threads == [("b1", "a2:0"), ("b2", "a3:0")]


def test_a_subagents_first_try_is_superseded_when_it_is_started_anew() -> None:
    """Sent to the background, it begins again from its prompt, in the same file."""
    first = user("b-u", None, "look")
    tries = (
        first, said("b-a1", "b-u", call("t1")),
        first, said("b-a2", "b-u", call("t2")), user("b-r2", "b-a2", [result("t2")]),
    )  # fmt: skip
    sink = parse(lines(user("u1", None, "go")), _aside("b1", *tries))
    assert [b["id"] for b in sink.blocks("all") if b.get("superseded")] == ["b-a1:0"]
    assert [b["status"] for b in of_type(sink, "tool_use")] == ["success"]
    assert [b["content"] for b in of_type(sink, "user_message")] == ["go", "look"]


def test_a_teammate_is_linked_by_its_name_and_its_report_ends_its_call(tmp_path: Path) -> None:
    """Its sidecar has a name and no description; its first message is no prompt of the call's."""

    def spawn(tool: str, name: str) -> dict[str, Any]:
        given = {"prompt": f"You test {name}.", "description": f"test {name}", "name": name}
        return {**call(tool, "Agent"), "input": given}

    def spawned(uuid: str, parent: str, tool: str, name: str) -> dict[str, Any]:
        native = {"status": "teammate_spawned", "name": name, "agent_id": f"{name}@t"}
        return user(uuid, parent, [result(tool, "Spawned")], toolUseResult=native)

    message = '<teammate-message teammate_id="{}" color="blue">\n{}\n</teammate-message>'
    main = tmp_path / f"{SESSION}.jsonl"
    main.write_bytes(
        lines(
            user("u1", None, "make a team"),
            said("a1", "u1", spawn("t1", "server")), spawned("r1", "a1", "t1", "server"),
            said("a2", "r1", spawn("t2", "cli")), spawned("r2", "a2", "t2", "cli"),
            user("u2", "r2", message.format("server", "All is green.")),
            user("u3", "u2", message.format("cli", '{"type": "idle_notification"}')),
        )
    )  # fmt: skip
    side = main.with_suffix("") / "subagents"
    side.mkdir(parents=True)
    for agent, name in (("acli-2", "cli"), ("aserver-1", "server")):
        first = user(f"{agent}-u", None, message.format("team-lead", f"You test {name}."))
        child = _aside(agent, first, said(f"{agent}-a", f"{agent}-u", "done"))
        (side / f"agent-{agent}.jsonl").write_bytes(child)
        meta = {"agentType": name, "name": name, "taskKind": "in_process_teammate"}
        (side / f"agent-{agent}.meta.json").write_text(json.dumps(meta))
    paths = [main, *sorted(side.glob("*.jsonl"))]
    (files,) = reader().discover([Source(str(path), path=path) for path in paths])
    sink = ParseSink()
    reader().parse_transcripts(files, sink)
    calls = {block["description"][5:]: block for block in of_type(sink, "subagent")}
    assert sink.findings == []
    assert {name: block["subagentId"] for name, block in calls.items()} == {
        "server": "aserver-1",
        "cli": "acli-2",
    }
    assert calls["server"]["link"] == {"method": "name", "confidence": "likely"}
    assert (calls["server"]["status"], calls["server"]["output"]) == ("success", "All is green.")
    assert calls["cli"]["status"] == "running"


def test_a_file_that_begins_with_another_sessions_row_is_its_own(tmp_path: Path) -> None:
    """Its name decides, and the row is remarked on; the other session's agents are not its own."""
    other = "00000009-0000-4000-8000-000000000009"
    main = tmp_path / f"{SESSION}.jsonl"
    foreign = {**user("u0", None, "[Request interrupted by user]"), "sessionId": other}
    main.write_bytes(lines(foreign, user("u1", "u0", "go"), said("a1", "u1", "x")))
    child = tmp_path / "agent-b1.jsonl"
    rows = ({**user("b-u", None, "look"), "sessionId": other},)
    child.write_bytes(_aside("b1", *rows))
    found = reader().discover([Source(str(path), path=path) for path in (main, child)])
    assert [len(files.transcripts) for files in found] == [1, 1]
    sink = ParseSink()
    reader().parse_transcripts(found[0], sink)
    assert [(f.id, f.line) for f in sink.findings] == [("mixed-sessions", 1)]
