"""Another provider answers where an agent's own gives no answer (decision D24)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.engine.close import reset
from agentsdir.engine.handoff import fallback_mode, fallback_providers
from agentsdir.engine.providers import primary_native
from agentsdir.engine.restore import restore_agent
from agentsdir.formats.blocks import block_complete
from agentsdir.formats.errors import NotRecorded, ProviderError
from agentsdir.formats.store.events import TURN_ENDS

DOWN = 'raise ProviderError("try later", kind="rate-limited")'
HEARS = """
text = content if isinstance(content, str) else content[-1]["text"]
yield self.answer(text)
"""
FICKLE = """
text = content if isinstance(content, str) else content[-1]["text"]
if text.endswith("!"):
    raise ProviderError("try later", kind="rate-limited")
yield self.answer(text)
"""
"""Fails at what is shouted, and repeats all that it is given else."""
FULL = "from agentsdir.formats.errors import NotRecorded\nraise NotRecorded('the disk is full')"


def fallbacks(stage: Any, paths: Any) -> list[tuple[str, str, str, int]]:
    """Return who handed over to whom in an agent's log, why, and which attempt that was."""
    data = [r["data"] for r in stage.log(paths) if r["event"] == "provider.fallback"]
    return [(one["from"], one["to"], one["reason"], one["attempt"]) for one in data]


@pytest.mark.feature("T-07")
def test_a_provider_that_fails_before_it_said_anything_is_stood_in_for(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """Each step is in the log, in order; the agent stays who it was."""
    paths = stage.new(provider=plugin("first", body=DOWN), fallbacks=(plugin("second"),))
    shown: list[dict[str, Any]] = []
    result = stage.send(paths, "hi", on_event=shown.append)
    assert (result.outcome, result.response) == (
        "completed",
        "second says hi".replace("second", "tiny"),
    )
    assert stage.events(paths)[1:] == [
        "message.enqueued",
        "session.state",
        "turn.start",
        "block",
        "transcript.synced",
        "block",
        "provider.fallback",
        "native.changed",
        "block",
        "block",
        "transcript.synced",
        "turn.complete",
        "native.changed",
        "message.delivered",
    ]
    assert fallbacks(stage, paths) == [("first", "second", "rate-limited: try later", 2)]
    prompts = [r["data"]["block"] for r in stage.log(paths) if r["event"] == "block"][:2]
    assert [b.get("superseded", False) for b in prompts] == [False, True]
    assert prompts[0]["id"] == prompts[1]["id"]
    assert [
        e["block"].get("superseded", False) for e in shown if e["type"] == "block_complete"
    ] == [
        False,
        True,
        False,
        False,
    ]
    state = stage.state(paths)
    assert (state.session.provider_name, state.native["architecture"]) == ("first", "first-cli")
    changed = [r["data"] for r in stage.log(paths) if r["event"] == "native.changed"]
    assert [(c["native"]["architecture"], c["reason"]) for c in changed] == [
        ("second-cli", "fallback"),
        ("first-cli", "fallback"),
    ]
    assert changed[1]["native"] == stage.log(paths)[0]["data"]["native"]


def test_a_provider_that_stands_in_gets_what_was_said_since_the_last_reset(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """And not what stands before it; results of tools are part of it."""
    paths = stage.new(
        provider=plugin("first", body=FICKLE), fallbacks=(plugin("second", body=HEARS),)
    )
    stage.send(paths, "forgotten")
    reset(stage.services, paths)
    stage.send(paths, "my name is Ada")
    heard = stage.send(paths, "my name?!").response
    assert '{"role":"user","text":"my name is Ada"}' in heard
    assert '{"role":"assistant","text":"my name is Ada"}' in heard
    assert heard.endswith("\n\nmy name?!")
    assert "forgotten" not in heard
    assert heard.count("my name?!") == 1


def test_the_agents_own_provider_gets_once_what_it_missed(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """With its next prompt; what it heard itself is not repeated."""
    second = plugin("second", body='yield self.answer("noted")')
    paths = stage.new(provider=plugin("first", body=FICKLE), fallbacks=(second,))
    stage.send(paths, "before")
    stage.send(paths, "while you were out!")
    stage.send(paths, "and again!")
    assert stage.state(paths).missed
    heard = stage.send(paths, "after").response
    assert '{"role":"user","text":"while you were out!"}' in heard
    assert '{"role":"user","text":"and again!"}' in heard
    assert heard.count('{"role":"assistant","text":"noted"}') == 2
    assert '"text":"before"' not in heard
    assert heard.endswith("\n\nafter")
    assert not stage.state(paths).missed
    assert stage.send(paths, "next").response == "next"


def test_a_carried_context_is_not_carried_again_within_the_next(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """The prompt's block has it; what is carried of a turn is the message alone."""
    paths = stage.new(provider=plugin("first", body=FICKLE), fallbacks=(plugin("second"),))
    for text in ("one", "two!", "three", "four!"):
        stage.send(paths, text)
    told = [r for r in stage.log(paths) if r["event"] == "block"][-2]["data"]["block"]["content"]
    assert told.count('{"role":"user","text":"one"}') == 1
    assert told.count('{"role":"user","text":"three"}') == 1


def test_no_provider_stands_in_once_a_block_has_begun(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """Half an answer of one, and another's after it, would be the answer of neither."""
    body = """
block = self.transcript.block("assistant_text", "half", self.spec.now(), content="")
yield stream.block_start(block["id"], block)
raise ProviderError("try later", kind="rate-limited")
"""
    paths = stage.new(provider=plugin("first", body=body), fallbacks=(plugin("second"),))
    with pytest.raises(ProviderError, match="try later"):
        stage.send(paths)
    assert fallbacks(stage, paths) == []


def test_an_error_notice_is_no_block_of_the_turn(stage: Any, plugin: Callable[..., str]) -> None:
    """A client may log that it failed; that is no beginning of an answer."""
    body = """
said = {"subtype": "error", "message": "API Error"}
block = self.transcript.block("system", "notice", self.spec.now(), **said)
yield self.transcript.record(stream.block_complete(block["id"], block))
raise ProviderError("try later", kind="rate-limited")
"""
    paths = stage.new(provider=plugin("first", body=body), fallbacks=(plugin("second"),))
    assert stage.send(paths).outcome == "completed"
    blocks = {}
    for record in stage.log(paths):
        if record["event"] == "block":
            blocks[record["data"]["block"]["id"]] = record["data"]["block"]
    assert [b["type"] for b in blocks.values() if b.get("superseded")] == ["user_message", "system"]


def test_a_chain_is_tried_to_its_end_and_fails_with_its_last_error(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """A provider that is not there is a step like any other, but no reason if one was tried."""
    second = plugin("second", body='raise ProviderError("too late", kind="overloaded")')
    chain = ("first", second, second, "gone")
    paths = stage.new(provider=plugin("first", body=DOWN))
    services = stage.services._replace(settings=stage.services.settings._replace(fallbacks=chain))
    with pytest.raises(ProviderError, match="too late") as failed:
        send_in(services, paths)
    assert failed.value.kind == "overloaded"
    assert fallbacks(stage, paths) == [
        ("first", "second", "rate-limited: try later", 2),
        ("second", "gone", "overloaded: too late", 3),
    ]
    (error,) = [r["data"] for r in stage.log(paths) if r["event"] == "turn.error"]
    why = "too late; gone could not stand in: there is no adapter 'gone'"
    assert (error["kind"], error["message"]) == ("overloaded", why)
    assert stage.state(paths).native["architecture"] == "first-cli"
    assert stage.state(paths).pending == []


def send_in(services: Any, paths: Any) -> Any:
    """Send a text in a root with settings of its own."""
    from agentsdir.engine.dispatcher import send

    return send(services, paths, [{"type": "text", "text": "hi"}], lambda _event: None)


def test_where_no_provider_of_a_chain_is_there_that_is_the_error(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """The agent's own provider was uninstalled, and the other one never was."""
    absent = 'raise ProviderError("there is no program", kind="no-client")'
    paths = stage.new(provider=plugin("first", restore=absent))
    services = stage.services._replace(
        settings=stage.services.settings._replace(fallbacks=("gone",))
    )
    with pytest.raises(ProviderError) as failed:
        send_in(services, paths)
    assert failed.value.kind == "no-provider"


@pytest.mark.parametrize("kind", ["refused", "aborted", "use-reset", "bad-options"])
def test_some_errors_are_final(stage: Any, plugin: Callable[..., str], kind: str) -> None:
    """An answer of another provider would not be what was asked for."""
    body = f'raise ProviderError("no", kind="{kind}")'
    paths = stage.new(provider=plugin("first", body=body), fallbacks=(plugin("second"),))
    with pytest.raises(ProviderError, match="no"):
        stage.send(paths)
    assert fallbacks(stage, paths) == []


def test_within_an_architecture_the_native_session_goes_on(
    stage: Any, plugin: Callable[..., str], tmp_path: Path
) -> None:
    """Its transcript has all that was said, so nothing is carried over."""
    second = plugin("second", body=HEARS)
    module = tmp_path / "site-second" / "plugin_second.py"
    module.write_text(module.read_text().replace("'second' + \"-cli\"", '"first-cli"'))
    paths = stage.new(provider=plugin("first", body=FICKLE), fallbacks=(second,))
    stage.send(paths, "one")
    assert stage.send(paths, "two!").response == "two!"
    assert "native.changed" not in stage.events(paths)
    assert stage.send(paths, "three").response == "three"


@pytest.mark.parametrize("who", ["restore", "send"])
def test_a_crash_while_another_provider_stood_in_leads_back(
    stage: Any, plugin: Callable[..., str], who: str
) -> None:
    """The command that ends the turn sets the agent's own native session in force again."""
    second = plugin("second", body=FULL)
    paths = stage.new(provider=plugin("first", body=FICKLE), fallbacks=(second,))
    with pytest.raises(NotRecorded):
        stage.send(paths, "hi!")
    assert stage.state(paths).native["architecture"] == "second-cli"
    own = primary_native(paths, stage.state(paths))
    if who == "restore":
        restore_agent(stage.services, paths)
        assert stage.events(paths)[-4:-1] == [
            "turn.aborted",
            "native.changed",
            "message.delivered",
        ]
        assert stage.state(paths).native == own
    heard = stage.send(paths, "again").response
    assert stage.state(paths).native == own
    assert '{"role":"user","text":"hi!"}' in heard


def test_the_permission_mode_of_one_client_is_not_taken_for_anothers() -> None:
    """A mode that both have the same word for is meant; any other becomes the default."""
    assert [fallback_mode(mode) for mode in ("", "plan", "default", "acceptEdits", "yolo")] == [
        "",
        "plan",
        "default",
        "default",
        "default",
    ]


FAILURES = [
    (DOWN, (), "Inference failed."),
    ('raise ProviderError("there is no program", kind="no-client")', ("gone",),
     "No inference provider available."),
]  # fmt: skip


@pytest.mark.feature("T-08")
@pytest.mark.parametrize(("body", "chain", "text"), FAILURES)
def test_a_person_hears_why_there_is_no_answer(
    stage: Any, plugin: Callable[..., str], body: str, chain: tuple[str, ...], text: str
) -> None:
    """By the text of what failed, after all of the chain did."""
    person = {"connector": "telegram", "user": "42", "channel": "42"}
    paths = stage.new(provider=plugin("first", restore=body), **person)
    services = stage.services._replace(settings=stage.services.settings._replace(fallbacks=chain))
    with pytest.raises(ProviderError):
        send_in(services, paths)
    (said,) = [r["data"] for r in stage.log(paths) if r["event"] == "outgoing"]
    assert said["text"] == text


def test_what_was_given_up_stays_so_when_the_client_is_used_by_hand(
    stage: Any, plugin: Callable[..., str], program: Callable[..., str]
) -> None:
    """Its transcript has the failed attempt, and says nothing of another one."""
    paths = stage.new(provider=program(body=DOWN), fallbacks=(plugin("second"),))
    stage.send(paths, "hi")
    (store,) = (stage.home / "store").glob("*.jsonl")
    block = {
        "type": "assistant_text",
        "id": "by-hand",
        "conversationId": "main",
        "sessionId": store.stem,
        "timestamp": None,
        "source": None,
        "content": "by hand",
    }
    row = orjson.dumps(block_complete("by-hand", block))
    store.write_bytes(store.read_bytes() + row + b"\n")
    program()
    stage.send(paths, "again")
    blocks = {}
    for record in stage.log(paths):
        if record["event"] == "block":
            blocks[record["data"]["block"]["id"]] = record["data"]["block"]
    assert blocks["by-hand"]["content"] == "by hand"
    given_up = [b for b in blocks.values() if b.get("superseded")]
    assert [(b["type"], b["content"]) for b in given_up] == [("user_message", "hi")]


def test_a_provider_that_dies_is_stood_in_for_and_poisons_no_queue(
    stage: Any, plugin: Callable[..., str], program: Callable[..., str]
) -> None:
    """Before it said anything; once it has, the turn fails, and the next one is run."""
    dies = """
killed = self.start("sleep", "600")
killed.kill()
killed.wait()
if "late" in str(content):
    yield from self.begun("answer", "half of an ans")
raise ProviderError("the client was ended before it had answered", kind="cut-stream")
"""
    paths = stage.new(provider=program(body=dies), fallbacks=(plugin("second"),))
    stage.enqueue(paths, "first")
    stage.enqueue(paths, "late")
    assert stage.send(paths, "last").outcome == "completed"
    log = stage.log(paths)
    ends = [(r["event"], r["data"].get("kind")) for r in log if r["event"] in TURN_ENDS]
    assert ends == [
        ("turn.complete", None),
        ("turn.error", "cut-stream"),
        ("turn.complete", None),
    ]
    delivered = [r["data"]["outcome"] for r in log if r["event"] == "message.delivered"]
    assert delivered == ["completed", "failed", "completed"]


def test_a_long_list_of_stand_ins_is_tried_as_far_as_ten(stage: Any) -> None:
    """A list may have come with a bundle, and name a thousand."""
    listed = [f"other-{number}" for number in range(50)]
    state = replace(stage.state(stage.new()), fallbacks=["echo", *listed])
    assert fallback_providers(stage.services, state) == listed[:10]


def test_who_died_before_the_way_back_is_brought_back_by_the_next_turn(stage: Any) -> None:
    """A turn without a message is over with its end, so nothing else is left open."""
    paths = stage.new()
    own = stage.state(paths).native
    abroad = {**own, "architecture": "script", "id": "00000000-0000-4000-8000-00000000abcd"}
    stage.append(paths, "native.changed", {"native": abroad, "reason": "fallback"})

    assert stage.send(paths, "hi").outcome == "completed"

    assert stage.state(paths).native == own
    back = [r["data"] for r in stage.log(paths) if r["event"] == "native.changed"][-1]
    assert back == {"native": own, "reason": "fallback"}
    assert stage.events(paths)[-1] == "message.delivered"


def test_an_agent_whose_own_provider_is_missing_is_brought_back_too(
    stage: Any, plugin: Callable[..., str], tmp_path: Path
) -> None:
    """Its turn fails, and ends where the agent belongs."""
    paths = stage.new(provider=plugin("gone"))
    own = stage.state(paths).native
    abroad = {**own, "architecture": "script", "id": "00000000-0000-4000-8000-00000000abcd"}
    stage.append(paths, "native.changed", {"native": abroad, "reason": "fallback"})
    shutil.rmtree(tmp_path / "site-gone")
    sys.modules.pop("plugin_gone", None)

    with pytest.raises(ProviderError) as failed:
        stage.send(paths, "hi")

    assert failed.value.kind == "no-provider"
    assert stage.state(paths).native == own
