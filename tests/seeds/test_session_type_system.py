"""The examples of the design `session-type-system`, in Python, in the order in which they stand.

The names are those of `agentsdir`: methods in snake_case, and blocks and states as the dicts that
are on disk and in JSON, whose keys are the design's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir import (
    AgentConfig,
    AgentSandbox,
    AgentSession,
    App,
    ModelRequest,
    Profile,
    ToolCall,
    model_provider,
    register,
    tool,
    write_script,
)
from agentsdir.adapters import registry
from agentsdir.formats.blocks import Reducer

FIXTURES = Path(__file__).parents[2] / "fixtures"
THINKING = {
    "type": "block_complete",
    "blockId": "thought",
    "block": {"type": "thinking", "id": "thought", "content": "The code has an issue..."},
}


@tool
def Read(file: str) -> str:  # noqa: N802, the name that the model knows
    """Read a file."""
    return f"the content of {file}"


def types(blocks: list[Any]) -> list[str]:
    """Return the types of blocks."""
    return [block["type"] for block in blocks]


def session_of(root: Path, *turns: Any, tools: Any = (Read,)) -> tuple[App, AgentSession]:
    """Return a session whose model says what these turns are."""
    script = write_script(root / "model.jsonl", *turns)
    agent = AgentConfig(provider="script", options={"file": script}, tools=list(tools))
    app = App(agent, root=root / "agents")
    return app, AgentSession(app.session())


@pytest.mark.feature("B-08")
def test_each_block_is_synced_as_soon_as_it_is_there(tmp_path: Path) -> None:
    """1. Block-Based Architecture: text, call, result, thought and text, each a block of its own.

    Whatever of the turn has come is in the state, and on disk, while the turn goes on.
    """
    turn = ["I'll analyze the code", ToolCall("Read", {"file": "a.ts"}), THINKING, "I found a bug"]
    app, session = session_of(tmp_path, turn)
    seen: list[str] = []
    with app:
        for event in session.send_message("Analyze it"):
            if event["type"] != "block_complete":
                continue
            state = session.get_state()
            (stored,) = [one for one in state["blocks"] if one["id"] == event["block"]["id"]]
            assert stored["type"] == event["block"]["type"]
            seen.append(event["block"]["type"])

        assert types(session.get_state()["blocks"]) == [
            "user_message",
            "assistant_text",
            "tool_use",
            "tool_result",
            "thinking",
            "assistant_text",
        ]
    assert list(dict.fromkeys(seen)) == [
        "user_message",
        "assistant_text",
        "tool_use",
        "tool_result",
        "thinking",
    ]


@pytest.mark.feature("B-02")
def test_runtime_data_extends_saved_data_which_extends_list_data(tmp_path: Path) -> None:
    """2. Separation of Saved vs. Runtime Data, and Type Hierarchy: each has what is above it.

    Saved data is what an adapter needs to make the blocks, and runtime data has both.
    """
    app, session = session_of(tmp_path, ["Hello."])
    with app:
        list(session.send_message("Hello"))
    state = session.get_state()

    listed = {"sessionId", "type", "agentProfileReference", "status", "lastActivity", "createdAt"}
    saved = listed | {"rawTranscript", "subagents", "workspaceFiles"}
    assert state.keys() >= saved | {"blocks"}

    # Loading: 1. the saved data, 2. its raw transcript to the adapter, 3. blocks, 4. both.
    sandbox = AgentSandbox(state["type"], tmp_path)
    parsed = sandbox.parse_transcripts(state["rawTranscript"])
    assert [one["id"] for one in parsed["blocks"]] == [one["id"] for one in state["blocks"]]


@pytest.mark.feature("B-04")
def test_a_subagent_has_a_thread_of_its_own(tmp_path: Path) -> None:
    """3. Subagent Conversation Threading: a block in the main conversation refers to the thread."""
    app, session = session_of(tmp_path, ["I'll use the code-reviewer agent"])
    reviewer_script = write_script(
        tmp_path / "reviewer.jsonl",
        [
            "Reading the authentication files...",
            ToolCall("Read", {"file": "auth.ts"}),
            "Found 3 security issues...",
        ],
    )
    reviewer = AgentConfig(provider="script", options={"file": reviewer_script}, tools=[Read])
    with app:
        list(session.send_message("Please analyze this code"))
        spawned = session.session.spawn(
            reviewer, "Review the auth logic", name="code-reviewer", ephemeral=False
        )
        spawned.wait()
        state = session.get_state()

    main = state["blocks"]
    assert types(main) == ["user_message", "assistant_text", "subagent"]
    reference = main[-1]
    assert (reference["name"], reference["input"], reference["status"]) == (
        "code-reviewer",
        "Review the auth logic",
        "success",
    )
    (thread,) = state["subagents"]
    assert thread["id"] == reference["subagentId"]
    assert types(thread["blocks"]) == [
        "system",
        "user_message",
        "assistant_text",
        "tool_use",
        "tool_result",
        "assistant_text",
        "system",
    ]
    assert [one["message"] for one in thread["blocks"] if one["type"] == "system"] == [
        "Subagent code-reviewer started",
        "Subagent code-reviewer completed",
    ]


FLOW = [
    {
        "type": "block_start",
        "blockId": "txt-1",
        "block": {"type": "assistant_text", "id": "txt-1", "content": ""},
    },
    {"type": "text_delta", "blockId": "txt-1", "delta": "I'll"},
    {"type": "text_delta", "blockId": "txt-1", "delta": " read"},
    {"type": "text_delta", "blockId": "txt-1", "delta": " the file"},
    {
        "type": "block_complete",
        "blockId": "txt-1",
        "block": {"type": "assistant_text", "id": "txt-1", "content": "I'll read the file"},
    },
    {
        "type": "block_start",
        "blockId": "tool-1",
        "block": {
            "type": "tool_use",
            "id": "tool-1",
            "toolName": "Read",
            "toolUseId": "call-1",
            "input": {"file": "config.json"},
            "status": "pending",
        },
    },
    {"type": "block_update", "blockId": "tool-1", "updates": {"status": "running"}},
    {
        "type": "block_complete",
        "blockId": "tool-1",
        "block": {
            "type": "tool_use",
            "id": "tool-1",
            "toolName": "Read",
            "toolUseId": "call-1",
            "input": {"file": "config.json"},
            "status": "success",
        },
    },
    {
        "type": "block_complete",
        "blockId": "result-1",
        "block": {
            "type": "tool_result",
            "id": "result-1",
            "toolUseId": "call-1",
            "output": {"port": 80},
            "isError": False,
        },
    },
    {
        "type": "metadata_update",
        "metadata": {"usage": {"inputTokens": 100, "outputTokens": 20}, "costUSD": 0.05},
    },
]
"""The ten events of "Example Streaming Flow"."""


@pytest.mark.feature("B-05")
def test_the_streaming_flow_reaches_the_reader_event_by_event(tmp_path: Path) -> None:
    """4. Streaming Events: the five types in their order, and what a screen makes of them."""
    app, session = session_of(tmp_path, FLOW, tools=())
    shown = Reducer()
    typed = ""
    statuses: list[str] = []
    streamed: list[Any] = []
    with app:
        for event in session.send_message("What's in config.json?"):
            streamed.append(event)
            block = shown.apply(event)
            if event["type"] == "text_delta":
                typed += event["delta"]
            if block is not None and block["type"] == "tool_use":
                statuses.append(block["status"])
        state = session.get_state()

    assert types(streamed) == ["block_complete", *types(FLOW)]
    assert streamed[0]["block"]["content"] == "What's in config.json?"
    assert typed == "I'll read the file"
    assert statuses == ["pending", "running", "success"]
    assert shown.metadata["main"]["costUSD"] == 0.05
    assert [one["id"] for one in shown.blocks()] == [one["id"] for one in state["blocks"]]


@pytest.mark.feature("B-05")
def test_a_real_tool_call_has_the_same_statuses(tmp_path: Path) -> None:
    """4. The flow again, with a tool that the engine runs: pending, running, success."""
    app, session = session_of(
        tmp_path, ["I'll read the file", ToolCall("Read", {"file": "config.json"}), "Port 80."]
    )
    shown = Reducer()
    statuses: list[str] = []
    with app:
        for event in session.send_message("What's in config.json?"):
            block = shown.apply(event)
            if block is not None and block["type"] == "tool_use":
                statuses.append(block["status"])

    assert statuses == ["pending", "running", "success"]
    (result,) = [one for one in shown.blocks() if one["type"] == "tool_result"]
    assert result["output"] == "the content of config.json"


@pytest.mark.feature("B-05")
def test_each_event_says_whose_conversation_it_is_of(tmp_path: Path) -> None:
    """4. conversationId: a screen routes by it, and each thread is that of the state."""
    options = {"file": str(FIXTURES / "script" / "subagent.jsonl")}
    session = AgentSession.create(root=tmp_path, architecture="script", options=options)
    shown = Reducer()
    for event in session.send_message("Review this"):
        assert event["conversationId"]
        shown.apply(event)

    state = session.get_state()
    threads = {"main": state["blocks"], **{o["id"]: o["blocks"] for o in state["subagents"]}}
    assert len(threads) > 1
    ids = {name: [block["id"] for block in blocks] for name, blocks in threads.items()}
    assert {
        name: [block["id"] for block in blocks] for name, blocks in shown.conversations.items()
    } == ids


ARCHITECTURES = ("claude-agent-sdk", "gemini-cli", "script", "echo")


@pytest.mark.feature("B-06", "B-10")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_sandbox_asks_the_adapter_for_what_differs(tmp_path: Path, architecture: str) -> None:
    """5. Architecture Adapter Pattern, get_paths and setup_agent_profile: one call for each.

    The class has no condition on the architecture, and no name of one.
    """
    sandbox = AgentSandbox(architecture, tmp_path)
    paths = sandbox.get_paths()
    assert paths.workspace == tmp_path
    assert paths.transcripts.is_relative_to(paths.storage)

    profile = Profile("Be kind.", {"a.md": b"skill"}, {"b.md": b"agent"})
    written = sandbox.setup_agent_profile(profile)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")} == set(written)

    import agentsdir.engine.app.agent_session as module

    source = Path(str(module.__file__)).read_text()
    assert not [name for name in (*registry.BUILT_IN, *ARCHITECTURES) if f'"{name}"' in source]


@pytest.mark.feature("B-06", "B-10")
def test_a_sandbox_executes_queries_as_one_stream_whatever_the_architecture(tmp_path: Path) -> None:
    """5. How It Works: the adapter runs the query, and yields the unified events."""
    for architecture in ("echo", "my-model"):
        if architecture == "my-model":
            register(model_provider("my-model", lambda request: f"you said {request.content}"))
        try:
            sandbox = AgentSandbox(architecture, tmp_path)
            new = list(sandbox.execute_query("Hello", is_new_session=True))
            more = list(sandbox.execute_query("More", is_new_session=False))
            parsed = sandbox.parse_transcripts()
        finally:
            registry.unregister("my-model")

        for events in (new, more):
            assert {"block_start", "text_delta", "block_complete"} <= set(types(events))
        assert types(parsed["blocks"]) == ["user_message", "assistant_text"] * 2


@pytest.mark.feature("B-10")
def test_creating_a_new_session(tmp_path: Path) -> None:
    """Example Usage, Creating a New Session: a profile, an architecture, a message, its stream."""
    (profile := tmp_path / "agents" / "profiles" / "code-assistant").mkdir(parents=True)
    (profile / "instructions.md").write_text("You assist with code.")

    session = AgentSession.create(
        agent_profile_ref="code-assistant", architecture="echo", root=tmp_path / "agents"
    )
    text, finalized = "", []
    for event in session.send_message("Hello"):
        if event["type"] == "text_delta":
            text += event["delta"]
        if event["type"] == "block_complete":
            finalized.append(event["block"])

    state = session.get_state()
    assert text == "Hello"
    assert types(finalized) == types(state["blocks"]) == ["user_message", "assistant_text"]
    assert state["agentProfileReference"] == "code-assistant"


@pytest.mark.feature("B-10")
def test_creating_a_new_session_in_a_coroutine(tmp_path: Path) -> None:
    """Example Usage, the same with `for await`."""

    async def main() -> tuple[str, Any]:
        session = await asyncio.to_thread(
            AgentSession.create, architecture="echo", root=tmp_path / "agents"
        )
        text = ""
        async for event in session.send_message("Hello"):
            if event["type"] == "text_delta":
                text += event["delta"]
        return text, await asyncio.to_thread(session.get_state)

    text, state = asyncio.run(main())
    assert (text, types(state["blocks"])) == ("Hello", ["user_message", "assistant_text"])


@pytest.mark.feature("B-10")
def test_loading_an_existing_session(tmp_path: Path) -> None:
    """Example Usage, Loading an Existing Session: it has the raw transcript, and the blocks.

    It goes on where it was.
    """
    first = AgentSession.create(architecture="echo", root=tmp_path)
    list(first.send_message("Hello"))
    saved = first.get_state()

    session = AgentSession.create(session_id=saved["sessionId"], root=tmp_path)
    state = session.get_state()
    assert state == saved
    assert isinstance(state["rawTranscript"], str)
    assert state["rawTranscript"].encode() in {
        path.read_bytes() for path in tmp_path.rglob("transcripts/**/*.jsonl")
    }

    list(session.send_message("More"))
    assert types(first.get_state()["blocks"]) == ["user_message", "assistant_text"] * 2


@pytest.mark.feature("B-04", "B-10")
def test_handling_subagents(tmp_path: Path) -> None:
    """Example Usage, Handling Subagents: of the client itself, and those that were spawned."""
    options = {"file": str(FIXTURES / "script" / "subagent.jsonl")}
    session = AgentSession.create(root=tmp_path, architecture="script", options=options)
    list(session.send_message("Review this"))
    reviewer = AgentConfig(provider="echo")
    session.session.spawn(reviewer, "Review it, too", name="second", ephemeral=False).wait()

    state = session.get_state()
    referred = [block for block in state["blocks"] if block["type"] == "subagent"]
    lines = [f"Subagent {block['name']} is {block['status']}" for block in referred]
    for subagent in state["subagents"]:
        lines.append(f"Subagent {subagent['id']}:")
        lines += [f"  - {block['type']}" for block in subagent["blocks"]]

    assert len(referred) == 2
    assert lines[1] == "Subagent second is success"
    assert {one["subagentId"] for one in referred} == {one["id"] for one in state["subagents"]}
    assert all(one["blocks"] for one in state["subagents"])
    assert lines[-4:] == ["  - system", "  - user_message", "  - assistant_text", "  - system"]


def test_a_model_in_the_program_is_an_architecture_like_any_other(tmp_path: Path) -> None:
    """5. Easy to add new architectures: one object, and everything above works with it."""

    def model(request: ModelRequest) -> Iterator[str]:
        yield "I am "
        yield "new."

    try:
        session = AgentSession.create(
            architecture=model_provider("brand-new", model), root=tmp_path
        )
        deltas = [
            event["delta"]
            for event in session.send_message("Who?")
            if event["type"] == "text_delta"
        ]
        state = session.get_state()
    finally:
        registry.unregister("brand-new")
    assert deltas == ["I am ", "new."]
    assert state["type"] == "brand-new"
    assert orjson.loads(orjson.dumps(state["blocks"][-1]))["content"] == "I am new."
