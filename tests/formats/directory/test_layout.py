"""Where things stand, and what may not stand in their place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentsdir.formats.errors import AgentsdirError, Invalid, UnknownVersion, UnsafePath
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.layout import Layout, open_plain, read_bytes, read_json


def plant(path: Path, what: str, elsewhere: Path) -> None:
    """Put something that is no regular file at `path`."""
    path.unlink(missing_ok=True)
    if what == "link":
        path.symlink_to(elsewhere)
    elif what == "dangling link":
        path.symlink_to(elsewhere.with_name("nowhere"))
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")


PLANTS = ("link", "dangling link", "fifo", "folder", "device")


@pytest.mark.parametrize("what", PLANTS)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_APPEND, os.O_WRONLY])
def test_only_a_regular_file_is_opened(tmp_path: Path, what: str, flags: int) -> None:
    """Links are not followed, and a FIFO does not hang."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    plant(tmp_path / "file", what, secret)
    with pytest.raises(UnsafePath):
        open_plain(tmp_path / "file", flags)
    assert secret.read_text() == "secret"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("what", PLANTS)
def test_an_agent_whose_log_is_no_regular_file_is_refused(agents: Any, what: str) -> None:
    """By readers and writers alike, and nothing is written through."""
    paths = agents.publish()
    secret = agents.layout.root.parent / "secret"
    secret.write_bytes(paths.log.read_bytes())
    before = secret.read_bytes()
    plant(paths.log, what, secret)
    with pytest.raises(Invalid):
        read_agent(paths)
    with pytest.raises(Invalid):
        agents.append(paths, "history.reset", {})
    assert secret.read_bytes() == before


@pytest.mark.parametrize("what", PLANTS)
@pytest.mark.parametrize("name", ["state.json", "session.json", "descriptor.json"])
def test_a_derived_file_that_is_no_regular_file_does_not_matter_to_a_reader(
    agents: Any, what: str, name: str
) -> None:
    """The log says it all."""
    paths = agents.publish()
    agents.talk(paths)
    state = read_agent(paths, whole=True).state
    plant(paths.folder / name, what, agents.layout.root / "agentsdir.json")
    state.session.provider_state = b""
    assert read_agent(paths).state == state


@pytest.mark.parametrize("what", ["link", "dangling link", "fifo", "device"])
def test_a_writer_replaces_what_stands_in_place_of_a_derived_file(agents: Any, what: str) -> None:
    """It is renamed over; what a link pointed to is untouched."""
    paths = agents.publish()
    secret = agents.layout.root.parent / "secret"
    secret.write_text("secret")
    plant(paths.state, what, secret)
    agents.append(paths, "history.reset", {})
    assert secret.read_text() == "secret"
    assert read_json(paths.state)["lastSeq"] == 2


def test_a_linked_agent_folder_is_refused_and_not_listed(agents: Any) -> None:
    """A link in place of the folder could lead anywhere."""
    paths = agents.publish()
    elsewhere = agents.layout.root.parent / "elsewhere"
    paths.folder.rename(elsewhere)
    paths.folder.symlink_to(elsewhere)
    with pytest.raises(UnsafePath):
        agents.layout.agent(agents.id)
    assert list(agents.layout.agent_ids()) == []


def test_a_file_in_place_of_an_agent_folder_is_refused(agents: Any) -> None:
    """It is no agent, and says so."""
    agents.publish()
    (agents.layout.agents / ("b" * 24)).write_text("")
    with pytest.raises(UnsafePath):
        agents.layout.agent("b" * 24)


def test_only_folders_named_by_the_grammar_are_agents(agents: Any) -> None:
    """Leftovers of a dead writer and strangers are passed over; order is by id."""
    agents.publish("b" * 24)
    agents.publish("a" * 24)
    for name in (f".tmp-{'c' * 24}-0123456789ab", "notes", "A" * 24, "d" * 33):
        (agents.layout.agents / name).mkdir()
    assert list(agents.layout.agent_ids()) == ["a" * 24, "b" * 24]


def test_a_root_that_does_not_exist_has_no_agents(tmp_path: Path) -> None:
    """Looking creates nothing."""
    layout = Layout(tmp_path / "none")
    assert list(layout.agent_ids()) == []
    assert layout.check_version(writing=True) is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "document",
    [
        {"format": "agentsdir", "version": 2, "features": []},
        {"format": "agentsdir", "version": "1", "features": []},
        {"format": "agentsdir", "version": None},
        {"format": "agentsdir"},
        {"format": "maildir", "version": 1},
        {},
    ],
)
@pytest.mark.parametrize("writing", [False, True])
def test_an_unknown_format_or_version_is_refused(
    tmp_path: Path, document: dict[str, Any], writing: bool
) -> None:
    """For reading too: what it means is not known."""
    (tmp_path / "agentsdir.json").write_text(json.dumps(document))
    with pytest.raises(UnknownVersion):
        Layout(tmp_path).check_version(writing=writing)


def test_an_unknown_feature_allows_reading_and_forbids_writing(tmp_path: Path) -> None:
    """The message names it."""
    document = {"format": "agentsdir", "version": 1, "features": ["shards"]}
    (tmp_path / "agentsdir.json").write_text(json.dumps(document))
    assert Layout(tmp_path).check_version(writing=False)
    with pytest.raises(UnknownVersion, match="shards"):
        Layout(tmp_path).check_version(writing=True)


def test_fields_that_are_not_known_do_not_matter(tmp_path: Path) -> None:
    """A newer program may have written them."""
    document = {"format": "agentsdir", "version": 1, "features": [], "comment": "hi"}
    (tmp_path / "agentsdir.json").write_text(json.dumps(document))
    assert Layout(tmp_path).check_version(writing=True)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b'{"a":1}x', b"\0" * 10])
def test_a_document_that_is_no_json_object_is_invalid(tmp_path: Path, data: bytes) -> None:
    """With its path in the message."""
    path = tmp_path / "agentsdir.json"
    path.write_bytes(data)
    with pytest.raises(Invalid, match=r"agentsdir\.json"):
        read_json(path)


def test_a_file_that_may_not_be_read_is_unreadable_and_one_not_to_be_written_is_not_recorded(
    tmp_path: Path,
) -> None:
    """A file in place of a folder stands for every refusal of the system."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid) as unreadable:
        read_bytes(tmp_path / "file" / "x")
    assert unreadable.value.kind == "unreadable"
    with pytest.raises(AgentsdirError) as refused:
        open_plain(tmp_path / "file" / "x", os.O_WRONLY)
    assert refused.value.kind == "not-recorded"


def test_a_planted_fifo_in_place_of_a_lock_does_not_hang_a_writer(agents: Any) -> None:
    """It is opened or refused, but not waited for."""
    paths = agents.publish()
    paths.lock.unlink(missing_ok=True)
    os.mkfifo(paths.lock)
    try:
        with write_agent(paths) as writer:
            assert writer.state.agent_id == agents.id
    except AgentsdirError:
        pass
