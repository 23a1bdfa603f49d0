"""A provider that reports its failure as an event, and raises nothing, has failed all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentsdir.formats.errors import ProviderError

REPORTS = {
    "an error": ({"stopReason": "error"}, "provider-failed", "the provider reports an error"),
    "an error with its kind": (
        {"stopReason": "error", "error": {"kind": "rate-limited", "message": "try later"}},
        "rate-limited",
        "try later",
    ),
    "an error without a stop reason": (
        {"error": {"message": "overloaded"}},
        "provider-failed",
        "overloaded",
    ),
    "an abort": ({"stopReason": "aborted"}, "aborted", "the provider aborted the turn"),
}
ANSWERS = {
    "an end": {"stopReason": "end_turn"},
    "a word about an error": {"stopReason": "end_turn", "error": "none"},
    "a refusal": {"stopReason": "refusal"},
    "a reason of another type": {"stopReason": ["error"]},
}


def reporting(*metadata: dict[str, Any], conversation: str = "main", text: str = "") -> str:
    """Return the body of a provider that says `text`, and then each of `metadata`."""
    said = [f"yield self.answer({text!r})"] if text else []
    told = [f"yield stream.metadata_update({one!r}, {conversation!r})" for one in metadata]
    return "; ".join([*said, *told])


@pytest.mark.feature("T-08", "S-11")
@pytest.mark.parametrize(("metadata", "kind", "message"), REPORTS.values(), ids=REPORTS)
def test_a_reported_failure_fails_the_turn_and_the_person_hears_it(
    stage: Any, plugin: Callable[..., str], metadata: dict[str, Any], kind: str, message: str
) -> None:
    """Also after an answer: its blocks stay, and the person gets the text of a failure."""
    provider = plugin("odd", body=reporting(metadata, text="half"))
    paths = stage.new(provider=provider, connector="irc", user="ada", channel="#c")
    with pytest.raises(ProviderError) as failed:
        stage.send(paths)
    assert (failed.value.kind, message in failed.value.message) == (kind, True)
    log = {record["event"]: record["data"] for record in stage.log(paths)}
    assert "turn.complete" not in log
    assert log["turn.error"]["kind"] == kind
    assert log["outgoing"]["text"] == "Inference failed."
    assert log["message.delivered"]["outcome"] == "failed"
    assert log["block"]["block"]["content"] == "half"


@pytest.mark.parametrize("metadata", ANSWERS.values(), ids=ANSWERS)
def test_any_other_metadata_is_that_of_a_turn_that_went_well(
    stage: Any, plugin: Callable[..., str], metadata: dict[str, Any]
) -> None:
    """A client's own words for the end of a turn stand as they are."""
    paths = stage.new(provider=plugin("odd", body=reporting(metadata, text="whole")))
    assert stage.send(paths).response == "whole"


def test_the_last_metadata_of_the_main_conversation_decides(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """A subagent's failure is not the turn's, nor is one that the provider got over."""
    aside = plugin("aside", body=reporting({"stopReason": "error"}, conversation="a task"))
    assert stage.send(stage.new(provider=aside)).stop_reason == "end_turn"
    again = reporting({"stopReason": "error"}, {"stopReason": "end_turn"})
    over = plugin("over", body=again)
    assert stage.send(stage.new(provider=over)).stop_reason == "end_turn"


@pytest.mark.feature("T-07")
def test_another_provider_stands_in_for_a_reported_error_and_not_for_an_abort(
    stage: Any, plugin: Callable[..., str]
) -> None:
    """As where it was raised: before the first block, and not where the turn was aborted."""
    errs = plugin("errs", body=reporting({"stopReason": "error"}))
    paths = stage.new(provider=errs, fallbacks=("echo",))
    assert stage.send(paths, "hi").response == "hi"
    assert "provider.fallback" in stage.events(paths)
    ends = plugin("ends", body=reporting({"stopReason": "aborted"}))
    with pytest.raises(ProviderError, match="aborted"):
        stage.send(stage.new(provider=ends, fallbacks=("echo",)), "hi")


@pytest.mark.feature("T-10")
@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_the_parent_of_a_subagent_gets_one_notice(
    stage: Any, plugin: Callable[..., str], reason: str
) -> None:
    """Of each turn that failed so."""
    parent = stage.new()
    provider = plugin("odd", body=reporting({"stopReason": reason}))
    child = stage.new(kind="subagent", parent=parent.id, name="fox", provider=provider)
    with pytest.raises(ProviderError):
        stage.send(child)
    told = [r["data"] for r in stage.log(parent) if r["event"] == "message.enqueued"]
    assert [(one["sender"], one["kind"], one.get("notice")) for one in told] == [
        (child.id, "system", True)
    ]
    assert "Subagent fox" in told[0]["content"][0]["text"]
