"""Runtime data: the blocks that the log has since its last reset, and those of spawned agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from asking import ASKS
from commands import printed

from agentsdir.engine.close import reset
from agentsdir.engine.lookup import find_agent
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.session_data import runtime_session
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.formats.blocks import make_block
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.store.agent import history_pieces
from agentsdir.formats.store.files import remove
from agentsdir.formats.store.layout import AgentPaths

pytestmark = pytest.mark.feature("B-02")

DOWN = 'raise ProviderError("try later", kind="rate-limited")'


def runtime(stage: Any, paths: AgentPaths) -> dict[str, Any]:
    """Return what `inspect --runtime` prints."""
    return printed(runtime_session(stage.services.layout, paths, stage.state(paths)))


def since_reset(paths: AgentPaths) -> dict[str, dict[str, Any]]:
    """Return the blocks after the last marker of history.jsonl, by id, as they are last."""
    found: dict[str, dict[str, Any]] = {}
    for line in b"".join(history_pieces(paths)).splitlines():
        entry = orjson.loads(line)
        if entry["type"] in ("start", "reset"):
            found = {}
        else:
            found[entry["id"]] = entry
    return found


def is_the_log(stage: Any, paths: AgentPaths) -> bool:
    """Tell whether runtime data have the blocks of history.jsonl, in its order and versions."""
    data = runtime(stage, paths)
    spawned = {block["subagentId"] for block in data["blocks"] if block["id"].startswith("spawn:")}
    threads = [one["blocks"] for one in data["subagents"] if one["id"] not in spawned]
    shown = {
        block["id"]: {**block, "source": None}
        for blocks in [data["blocks"], *threads]
        for block in blocks
    }
    logged = since_reset(paths)
    main = [key for key, block in logged.items() if block["conversationId"] == "main"]
    return shown == logged and [block["id"] for block in data["blocks"]] == main


def test_after_a_stand_in_they_have_its_answer_and_the_prompt_it_replaces(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """The transcripts of the agent's own provider have neither the answer nor that it failed."""
    paths = stage.new(provider=plugin("first", body=DOWN), fallbacks=(plugin("second"),))
    stage.send(paths)

    assert is_the_log(stage, paths)
    blocks = runtime(stage, paths)["blocks"]
    assert [(one["type"], one.get("superseded", False)) for one in blocks] == [
        ("user_message", True), ("user_message", False), ("assistant_text", False),
    ]  # fmt: skip


def test_after_a_crash_they_have_what_was_said_and_the_results_made_up(stage: Any) -> None:
    """No transcript has any of it."""
    paths = stage.new()
    turn = stage.begin_turn(paths)
    call = make_block(
        "tool_use", "c", "main", "s", None, None,
        toolName="Bash", toolUseId="c", input={}, status="running",
    )  # fmt: skip
    stage.append(paths, "block", {"turn_id": turn, "block": call})
    assert is_the_log(stage, paths)
    restore_agent(stage.services, paths)

    assert is_the_log(stage, paths)
    called, result = runtime(stage, paths)["blocks"]
    assert (called["status"], result["synthetic"]) == ("error", True)


def test_after_an_interrupt_they_have_the_text_as_far_as_it_came(
    stage: Any, program: Callable[..., str]
) -> None:
    """The transcript does not keep it."""
    body = 'yield from self.begun("answer", "half of an ans")\nraise KeyboardInterrupt'
    paths = stage.new(provider=program(body=body))
    with pytest.raises(KeyboardInterrupt):
        stage.send(paths)

    assert is_the_log(stage, paths)
    assert runtime(stage, paths)["blocks"][-1]["content"] == "half of an ans"


def test_after_a_failed_turn_they_have_its_prompt(stage: Any, plugin: Callable[..., str]) -> None:
    """Whether or not the next one is answered."""
    paths = stage.new(provider=plugin("down", body=DOWN))
    with pytest.raises(ProviderError):
        stage.send(paths)
    assert is_the_log(stage, paths)
    assert len(runtime(stage, paths)["blocks"]) == 1


def test_what_was_said_before_the_last_reset_is_not_in_them(stage: Any) -> None:
    """Nor is it while nothing was said since."""
    paths = stage.script("subagent.jsonl")
    stage.send(paths, "before")
    reset(stage.services, paths)
    assert (runtime(stage, paths)["blocks"], runtime(stage, paths)["subagents"]) == ([], [])
    stage.send(paths, "after")

    assert is_the_log(stage, paths)
    prompts = [b["content"] for b in runtime(stage, paths)["blocks"] if b["type"] == "user_message"]
    assert prompts == ["after"]


def test_a_block_has_the_place_that_it_has_in_the_stored_transcript(stage: Any) -> None:
    """The log does not say where; what no transcript has, has no place."""
    paths = stage.script("tools.jsonl")
    stage.send(paths)
    note = make_block("system", "noted", "main", "s", None, None, subtype="log", message="noted")
    stage.append(paths, "block", {"turn_id": None, "block": note})

    data = runtime(stage, paths)
    (stored,) = paths.transcripts.glob("*.jsonl")
    rows = stored.read_bytes()
    *others, last = data["blocks"]
    assert others
    assert last["source"] is None
    for block in others:
        source = block["source"]
        row = rows[source["offset"] : source["offset"] + source["length"]]
        assert source["file"] == stored.name
        assert block["id"] in row.decode()


def threads(data: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return the type and words of each block of each thread."""
    return {
        one["id"]: [
            (block["type"], block.get("message") or block.get("content")) for block in one["blocks"]
        ]
        for one in data["subagents"]
    }


def test_a_spawned_agent_is_an_entry_of_subagents_that_opens_and_closes(
    stage: Any, program: Callable[..., str]
) -> None:
    """With its blocks between, as those of the conversation that has its id."""
    paths = stage.new(provider=program(body=ASKS))
    stage.send(paths, "one failing")

    assert is_the_log(stage, paths)
    data = runtime(stage, paths)
    answers, fails = (b for b in data["blocks"] if b["id"].startswith("spawn:"))
    assert threads(data) == {
        answers["subagentId"]: [
            ("system", "Subagent one started"),
            ("user_message", "task of one"),
            ("assistant_text", "task of one"),
            ("system", "Subagent one completed"),
        ],
        fails["subagentId"]: [
            ("system", "Subagent failing started"),
            ("system", "Subagent failing failed"),
        ],
    }
    for entry in data["subagents"]:
        first, *_, last = entry["blocks"]
        assert {block["conversationId"] for block in entry["blocks"]} == {entry["id"]}
        assert (first["id"], last["id"]) == (f"{entry['id']}:start", f"{entry['id']}:end")
        assert (first["subtype"], last["subtype"]) == ("session_start", "session_end")


def test_a_spawned_agent_that_has_not_ended_has_an_open_thread(stage: Any) -> None:
    """It closes with the subagent's block."""
    parent = stage.new()
    wanted = SpawnRequest([{"type": "text", "text": "later"}], name="later")
    child = create_child(stage.services, parent, wanted, turn_id=None, sync=False)

    assert threads(runtime(stage, parent)) == {
        child.paths.id: [("system", "Subagent later started")]
    }


def test_of_a_spawned_agent_that_is_removed_the_bounds_are_left(
    stage: Any, program: Callable[..., str]
) -> None:
    """As the log of its parent knows them."""
    paths = stage.new(provider=program(body=ASKS))
    stage.send(paths, "one")
    (child,) = stage.state(paths).children or threads(runtime(stage, paths))
    remove(find_agent(stage.services.layout, child).folder)

    assert threads(runtime(stage, paths)) == {
        child: [("system", "Subagent one started"), ("system", "Subagent one completed")]
    }


def test_an_agent_that_a_log_names_but_did_not_spawn_shows_nothing_of_itself(stage: Any) -> None:
    """A log from a bundle may name any agent."""
    other, paths = stage.new(), stage.new()
    stage.send(other, "secret")
    block = make_block(
        "subagent", f"spawn:{other.id}", "main", "s", None, None,
        subagentId=other.id, name="x", input="", status="success",
    )  # fmt: skip
    stage.append(paths, "block", {"turn_id": None, "block": block})

    assert threads(runtime(stage, paths)) == {
        other.id: [("system", "Subagent x started"), ("system", "Subagent x completed")]
    }
