"""Following gives what parsing gives, however the client's writes and our looks fall."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from clients import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from watching import Watching, read_so_far, same

_MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None


def follow_by_chance(client: Client, fixture: Path, deeds: list[str], *, ordered: bool) -> None:
    """Let the files change and be looked at by chance; compare with parsing at the end."""
    contents = client.laid_out(fixture)

    @settings(max_examples=client.examples, deadline=None, derandomize=True)
    @given(data=st.data())
    def follow(data: Any) -> None:
        with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
            folder = Path(name)
            main = folder / next(iter(contents))
            watched, writer = client.watch(main), client.writer(folder, contents, data)
            for _ in range(data.draw(st.integers(1, 12), label="steps")):
                writer.step(deeds)
                if data.draw(st.booleans(), label="look"):
                    watched.poll()
            writer.rest()
            same(watched.end(), client.parsed(main), ordered=ordered)

    follow()


@pytest.mark.cases("fixtures")
def test_any_chunking_of_the_writes_gives_what_parsing_gives(client: Client, case: Path) -> None:
    """Logs grow by any number of bytes, documents are rewritten, half at times: same blocks."""
    follow_by_chance(client, case, ["grow"], ordered=client.in_order)


@pytest.mark.cases("fixtures")
def test_any_rewriting_gives_what_parsing_gives(client: Client, case: Path) -> None:
    """Files are cut off and written again, or replaced by ones that lack a row: same blocks."""
    deeds = ["grow", "grow", "grow", "cut", "replace"]
    follow_by_chance(client, case, deeds, ordered=False)


@pytest.fixture
def watched(client: Client) -> Watching:
    """Return a follower of a session that is there: a prompt and its answer, both told."""
    watched = client.watch(client.stand(client.talk))
    watched.poll()
    return watched


def append(path: Path, data: bytes) -> None:
    """Write to the end of a file."""
    with path.open("ab") as file:
        file.write(data)


def news(watched: Watching) -> list[Any]:
    """Look once; return the texts that were told for the first time."""
    return [
        event["block"].get("content")
        for event in watched.poll()
        if event["type"] == "block_complete" and not event["block"].get("hidden")
    ]


def test_a_file_may_come_late_and_its_folder_too(client: Client) -> None:
    """Until then there is nothing to tell, and nothing wrong."""
    watched = client.watch(client.main)
    assert watched.poll() == []
    client.main.parent.mkdir(parents=True)
    assert watched.poll() == []
    client.stand(client.talk)
    assert news(watched) == ["hi", "yes"]
    assert watched.poll() == []


def test_a_line_without_its_end_is_waited_for(client: Client, watched: Watching) -> None:
    """A block comes when its line is whole, and the torn end is no finding until there is one."""
    for at in range(0, len(client.more), 50):
        append(watched.main, client.more[at : at + 50])
        watched.poll()
        assert watched.follower.findings == []
    assert watched.texts() == ["hi", "yes", "more", "done"]
    append(watched.main, client.torn)
    watched.end()
    assert [finding.id for finding in watched.follower.findings] == ["torn-tail"]


def test_a_file_that_is_cut_off_and_written_again_is_reported_only_where_it_differs(
    client: Client, watched: Watching
) -> None:
    """Between the two, what was cut off does not stand; after them it does again."""
    watched.main.write_bytes(b"")
    watched.poll()
    assert watched.texts() == []
    watched.main.write_bytes(client.talk)
    events = watched.poll()
    assert {event["type"] for event in events} == {"block_update"}
    assert {event["updates"].get("superseded") for event in events} == {False}
    append(watched.main, client.more)
    assert news(watched) == ["more", "done"]
    assert watched.texts() == ["hi", "yes", "more", "done"]
    same(watched.end(), client.parsed(watched.main), ordered=False)


@pytest.mark.parametrize("what", ["file", "folder", "to another project"])
def test_what_is_renamed_is_followed_there(client: Client, watched: Watching, what: str) -> None:
    """And the new place is where subagents are looked for. No block is emitted twice."""
    old, project = watched.main, client.project
    if what == "file":
        new = old.rename(old.with_name("renamed.jsonl"))
    elif what == "folder":
        project = project.rename(project.with_name("moved"))
        new = project / client.transcript
    else:
        project = project.with_name("other")
        new = project / client.transcript
        new.parent.mkdir(parents=True)
        old.rename(new)
    assert watched.poll() == []
    append(new, client.more)
    assert news(watched) == ["more", "done"]
    client.stand(client.whole[client.child], client.child, project)
    assert client.child_id in {event["conversationId"] for event in watched.poll()}


def test_a_deleted_file_unsays_nothing_and_may_come_back(client: Client, watched: Watching) -> None:
    """What was reported stays. A new file in its place is the session then."""
    watched.main.unlink()
    assert watched.poll() == []
    assert watched.texts() == ["hi", "yes"]
    watched.main.write_bytes(client.talk + client.more)
    assert news(watched) == ["more", "done"]


def test_subagents_are_followed_in_threads_of_their_own(client: Client, watched: Watching) -> None:
    """From when their files are there, in every layout; not those of others."""
    for name, data in client.strangers.items():
        client.stand(data, name)
    for name, data in [*client.family.items()][1:]:
        path = client.stand(data[: len(data) // 2], name)
        assert watched.poll() == [], name
        path.write_bytes(data)
        (thread,) = {event["conversationId"] for event in watched.poll()}
        assert "look" in str(watched.reducer.blocks(thread)), name
    same(watched.end(), client.parsed(watched.main), ordered=client.in_order)


def test_a_subagents_file_can_be_followed_by_itself(client: Client) -> None:
    """As it can be parsed by itself."""
    path = client.stand(client.whole[client.child], client.child)
    alone = client.watch(path)
    given = alone.end()
    assert set(given) == {client.child_id}
    assert [finding.id for finding in alone.follower.findings] == client.child_alone
    same(given, client.parsed(path))


def test_a_long_session_is_reported_in_pieces_and_not_gathered(client: Client) -> None:
    """The first events come long before the last row is read."""
    client.stand(client.long(5000, "x" * 1000))
    events = client.reader.follow(client.main).poll()
    before = read_so_far()
    next(events)
    assert read_so_far() - before < 3 * 1024 * 1024 < client.main.stat().st_size
