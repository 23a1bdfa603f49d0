"""Texts for connectors: in order, at least once, and none lost."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsdir.engine.outbox import deliver, mark_all_delivered, mark_delivered, undelivered
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.services import Services
from agentsdir.engine.validate.files import validate
from agentsdir.formats.errors import Busy, HookFailed, ProviderError, UsageError
from agentsdir.formats.store import locks
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import AgentPaths


class Died(BaseException):
    """The process was killed."""


class Connector:
    """A hook that takes texts, refuses them, or whose caller dies, as its moods say."""

    def __init__(self, *moods: str) -> None:
        self.moods = list(moods)
        self.got: list[dict[str, Any]] = []

    def __call__(self, document: dict[str, Any]) -> bool:
        """Take one text."""
        mood = self.moods.pop(0) if self.moods else "takes"
        if mood == "refuses":
            raise HookFailed("the network is down", hook="outgoing")
        if mood == "is not there":
            return False
        if mood == "is killed":
            raise Died
        self.got.append(document)
        return True

    @property
    def texts(self) -> list[str]:
        """Return what was taken, in order."""
        return [document["text"] for document in self.got]


def put(stage: Any, paths: AgentPaths, *texts: str) -> list[str]:
    """Leave texts in an agent's outbox; return their ids."""
    made = []
    for text in texts:
        made.append(stage.ids.agent())
        who = {"connector": "irc", "userId": "ada", "channelId": "#c"}
        data = {"message_id": made[-1], **who, "text": text, "in_reply_to": None}
        stage.append(paths, "outgoing", data)
    return made


def services_with(stage: Any, connector: Connector, **changed: Any) -> Services:
    """Return services whose texts go to `connector`."""
    services: Services = stage.services
    return services._replace(deliver_text=connector, **changed)


def talker(stage: Any) -> AgentPaths:
    """Return the agent of a person behind a connector."""
    paths: AgentPaths = stage.new(connector="irc", user="ada", channel="#c")
    return paths


def left(stage: Any, paths: AgentPaths) -> list[str]:
    """Return the texts that wait."""
    return [one.data["text"] for one in undelivered(paths, stage.state(paths).undelivered)]


@pytest.mark.feature("T-08")
def test_texts_are_handed_out_in_order_and_once(stage: Any) -> None:
    """With all that a connector needs to know; afterwards nothing waits."""
    paths = talker(stage)
    ids = put(stage, paths, "one", "two")
    connector = Connector()

    handed = deliver(services_with(stage, connector), paths)
    deliver(services_with(stage, connector), paths)

    assert handed.taken == tuple(ids)
    assert connector.texts == ["one", "two"]
    assert connector.got[0] == {
        "agent_id": paths.id,
        "session_id": stage.state(paths).session.id,
        "name": None,
        "message_id": ids[0],
        "connector": "irc",
        "userId": "ada",
        "channelId": "#c",
        "text": "one",
        "in_reply_to": None,
    }
    assert left(stage, paths) == []
    assert stage.events(paths)[-2:] == ["outgoing.delivered"] * 2


def test_a_refused_text_waits_and_those_after_it_too(stage: Any) -> None:
    """Why stands in the log; the next attempt begins with it."""
    paths = talker(stage)
    put(stage, paths, "one", "two", "three")
    connector = Connector("takes", "refuses")

    handed = deliver(services_with(stage, connector), paths)

    assert handed.failed is not None
    assert connector.texts == ["one"]
    assert left(stage, paths) == ["two", "three"]
    assert stage.log(paths)[-1]["event"] == "hook.failed"
    assert stage.log(paths)[-1]["data"] == {"hook": "outgoing", "message": "the network is down"}

    deliver(services_with(stage, connector), paths)
    assert connector.texts == ["one", "two", "three"]


def test_without_a_hook_texts_wait_and_nothing_is_written(stage: Any) -> None:
    """A program that polls `outbox` finds them."""
    paths = talker(stage)
    put(stage, paths, "one")
    before = paths.log.read_bytes()

    assert deliver(services_with(stage, Connector("is not there")), paths).no_hook

    assert paths.log.read_bytes() == before
    assert left(stage, paths) == ["one"]


def test_who_dies_before_the_yes_is_recorded_hands_out_again(stage: Any) -> None:
    """At least once: better twice than never."""
    paths = talker(stage)
    put(stage, paths, "one", "two")
    connector = Connector()

    def dying() -> str:
        raise Died

    with pytest.raises(Died):
        deliver(services_with(stage, connector, now=dying), paths)
    assert left(stage, paths) == ["one", "two"]

    deliver(services_with(stage, connector), paths)
    assert connector.texts == ["one", "one", "two"]


def test_restore_hands_out_what_a_dead_process_did_not(stage: Any) -> None:
    """Whatever it wrote itself; killed on the way, it is done again."""
    paths = talker(stage)
    put(stage, paths, "one", "two")
    connector = Connector("takes", "is killed")

    with pytest.raises(Died):
        restore_agent(services_with(stage, connector), paths)
    restore_agent(services_with(stage, connector), paths)

    assert connector.texts == ["one", "two"]
    assert left(stage, paths) == []


def test_restore_leaves_a_text_that_the_hook_refused_until_there_is_another(stage: Any) -> None:
    """Else each would add to the log that the hook failed again."""
    paths = talker(stage)
    put(stage, paths, "one")
    connector = Connector("refuses", "takes")
    restore_agent(services_with(stage, connector), paths)
    before = paths.log.read_bytes()

    restore_agent(services_with(stage, connector), paths)
    assert (paths.log.read_bytes(), connector.texts) == (before, [])

    put(stage, paths, "two")
    restore_agent(services_with(stage, connector), paths)
    assert connector.texts == ["one", "two"]


def test_restore_without_a_hook_writes_nothing_and_says_nothing(stage: Any) -> None:
    """Texts wait there for a program that polls."""
    paths = talker(stage)
    put(stage, paths, "one")
    before = paths.log.read_bytes()

    restored = restore_agent(services_with(stage, Connector("is not there")), paths)

    assert (restored.actions, restored.error) == ((), None)
    assert paths.log.read_bytes() == before


def test_restore_says_that_it_spoke_and_a_dry_run_does_not_speak(stage: Any) -> None:
    """Nor say that there is something to do: there may be no hook, and then there never is."""
    paths = talker(stage)
    put(stage, paths, "one")
    connector = Connector()

    assert restore_agent(services_with(stage, connector), paths, dry_run=True).actions == ()
    assert connector.texts == []

    said = ("offered what waits in its outbox to the hook",)
    assert restore_agent(services_with(stage, connector), paths).actions == said


@pytest.mark.parametrize("crashed", [False, True])
def test_restore_hands_out_no_text_of_a_root_that_is_not_trusted(stage: Any, crashed: bool) -> None:
    """As `outbox --deliver`: neither what waits there nor what it writes itself."""
    paths = talker(stage)
    put(stage, paths, "one")
    if crashed:
        stage.append(paths, "session.state", {"from": "created", "to": "active", "reason": "send"})
        start = {"message_ids": [stage.enqueue(paths, "doomed")], "provider": "echo", "attempt": 1}
        stage.append(paths, "turn.start", {"turn_id": stage.ids.agent(), **start})

    def untrusted() -> None:
        raise ProviderError("it was found", kind="untrusted-root")

    connector = Connector()
    restored = restore_agent(services_with(stage, connector, check_trust=untrusted), paths)

    assert (bool(restored.actions), restored.error) == (crashed, None)
    assert connector.texts == []
    assert len(left(stage, paths)) == 1 + crashed


def test_restore_leaves_a_closed_agents_texts_to_a_command_that_asks(stage: Any) -> None:
    """Its log would not say that the hook has failed, which then ran at each restore."""
    paths = talker(stage)
    put(stage, paths, "one")
    stage.append(paths, "session.state", {"from": "created", "to": "terminated", "reason": "close"})
    connector = Connector("refuses")

    assert restore_agent(services_with(stage, connector), paths).actions == ()
    assert connector.moods == ["refuses"]


def test_a_text_without_a_name_does_not_keep_restore_from_the_others(stage: Any) -> None:
    """Whatever damaged the log."""
    paths = talker(stage)
    (odd, _) = put(stage, paths, "odd", "two")
    said, wrong = f'"message_id":"{odd}"'.encode(), b'"message_id":["x"]'
    paths.log.write_bytes(paths.log.read_bytes().replace(said, wrong))
    paths.state.unlink()
    connector = Connector()

    restored = restore_agent(services_with(stage, connector), paths)

    assert restored.error is None
    assert connector.texts == ["two"]


def test_while_a_turn_runs_no_other_process_hands_out(stage: Any) -> None:
    """Else two processes could hand out one text."""
    paths = talker(stage)
    put(stage, paths, "one")
    connector = Connector()

    with locks.hold(paths.turn), pytest.raises(Busy):
        deliver(services_with(stage, connector), paths)

    assert connector.texts == []


def test_a_closed_agents_last_words_are_handed_out(stage: Any) -> None:
    """They were said before it was closed."""
    paths = talker(stage)
    put(stage, paths, "one")
    change = {"from": "created", "to": "terminated", "reason": "close"}
    stage.append(paths, "session.state", change)
    connector = Connector()

    deliver(services_with(stage, connector), paths)

    assert connector.texts == ["one"]


def test_a_closed_agents_refused_text_waits_and_its_log_takes_no_reason(stage: Any) -> None:
    """A hook's failure is in the result, and is not raised."""
    paths = talker(stage)
    put(stage, paths, "one")
    change = {"from": "created", "to": "terminated", "reason": "close"}
    stage.append(paths, "session.state", change)
    before = paths.log.read_bytes()

    handed = deliver(services_with(stage, Connector("refuses")), paths)

    assert handed.failed is not None
    assert paths.log.read_bytes() == before
    assert left(stage, paths) == ["one"]


@pytest.mark.parametrize("mood", ["takes", "refuses"])
def test_a_text_that_is_settled_while_its_hook_runs_is_recorded_once(stage: Any, mood: str) -> None:
    """By the hook itself too; a refusal of it holds nothing up, and the next goes out."""
    paths = talker(stage)
    ids = put(stage, paths, "one", "two")
    connector = Connector(mood)

    def settling(document: dict[str, Any]) -> bool:
        if document["message_id"] == ids[0]:
            mark_delivered(stage.services, paths, ids[0])
        return connector(document)

    handed = deliver(stage.services._replace(deliver_text=settling), paths)

    assert handed.failed is None
    assert connector.texts[-1] == "two"
    assert left(stage, paths) == []
    assert stage.events(paths)[-2:] == ["outgoing.delivered"] * 2
    assert "hook.failed" not in stage.events(paths)
    assert [str(problem) for problem in validate([stage.root]) if problem.is_damage] == []


def test_a_text_that_is_settled_while_an_earlier_one_is_handed_out_is_not_handed_out(
    stage: Any,
) -> None:
    """What waits is looked at anew before each hook."""
    paths = talker(stage)
    ids = put(stage, paths, "one", "two", "three")
    connector = Connector()

    def settling(document: dict[str, Any]) -> bool:
        if document["message_id"] == ids[0]:
            mark_delivered(stage.services, paths, ids[1])
        return connector(document)

    deliver(stage.services._replace(deliver_text=settling), paths)

    assert connector.texts == ["one", "three"]
    assert stage.events(paths).count("outgoing.delivered") == 3


def test_another_program_may_say_that_a_text_was_taken(stage: Any) -> None:
    """Once, in any order; an id that is no text of this agent is refused."""
    paths = talker(stage)
    first, second = put(stage, paths, "one", "two")

    mark_delivered(stage.services, paths, second)
    assert left(stage, paths) == ["one"]
    before = paths.log.read_bytes()
    mark_delivered(stage.services, paths, second)
    assert paths.log.read_bytes() == before
    with pytest.raises(UsageError, match="has no outgoing text") as refused:
        mark_delivered(stage.services, paths, stage.ids.agent())
    assert refused.value.kind == "no-such-message"
    mark_delivered(stage.services, paths, first)
    assert left(stage, paths) == []


def test_several_texts_and_all_of_them_may_be_said_to_be_taken(stage: Any) -> None:
    """Where one id is wrong, nothing is recorded."""
    paths = talker(stage)
    first, second, _third = put(stage, paths, "one", "two", "three")
    with pytest.raises(UsageError):
        mark_delivered(stage.services, paths, first, stage.ids.agent())
    assert left(stage, paths) == ["one", "two", "three"]

    mark_delivered(stage.services, paths, second, first)
    assert left(stage, paths) == ["three"]
    assert [mark_all_delivered(stage.services, paths) for _ in range(2)] == [1, 0]
    assert left(stage, paths) == []


def test_an_error_that_has_an_aborts_name_is_reported_as_an_error(
    stage: Any, tmp_path: Path
) -> None:
    """Adapters name their errors as they like; no command ended this turn."""
    play = tmp_path / "play.jsonl"
    play.write_text('{"type":"error","kind":"timeout","message":"the model did not answer"}\n')
    paths = stage.script(str(play), connector="irc", user="ada", channel="#c")
    with pytest.raises(ProviderError):
        stage.send(paths)
    assert left(stage, paths) == ["Inference failed."]


MOODS = st.sampled_from(["takes", "takes", "refuses", "is not there", "is killed"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moods=st.lists(MOODS, max_size=12), count=st.integers(1, 4))
def test_whatever_a_hook_does_no_text_is_lost_doubled_or_reordered(
    stage: Any, moods: list[str], count: int
) -> None:
    """What was taken and what waits are together what was said, after each attempt."""
    paths = stage.new()
    said = [f"text {number}" for number in range(count)]
    put(stage, paths, *said)
    connector = Connector(*moods)
    services = services_with(stage, connector, disk=Disk(Durability.NEVER))
    for _ in range(len(moods) + 1):
        with suppress(Died):
            deliver(services, paths)
        assert connector.texts + left(stage, paths) == said
    assert connector.texts == said
