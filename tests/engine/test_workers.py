"""Items dealt to processes give what they give in one process, whatever becomes of a process."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.engine import workers
from agentsdir.engine.workers import WORTH, Result, deal
from agentsdir.formats.errors import AgentsdirError

# pytest's own watchdog is a thread, which a fork does not take along.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

Work = Callable[[int], tuple[bytes, Iterable[bytes]]]
SIZE = WORTH // 4
TWICE = "the process that had it was lost, and so was another one"


def work(item: int) -> tuple[bytes, Iterable[bytes]]:
    """Give pieces of several sizes, one of them longer than a frame."""
    sizes = (0, 1, item, 300_000, 7) if item % 3 else ()
    return b"note %d" % item, (bytes([item % 256]) * size for size in sizes)


def taken(results: Iterator[Result[int]]) -> list[tuple[int, bytes, bytes, str]]:
    """Return the items with all that they gave."""
    return [
        (one.item, one.note, b"".join(one.pieces), one.error.message if one.error else "")
        for one in results
    ]


def dealt(
    items: int, work: Work, jobs: int, size: int = SIZE
) -> list[tuple[int, bytes, bytes, str]]:
    """Return what some items gave, whose sizes are worth several processes."""
    return taken(deal(range(items), work, size=lambda _: size, jobs=jobs))


def no_children() -> bool:
    """Tell whether this process has no processes below it."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


@settings(max_examples=20)
@given(
    st.lists(st.sampled_from([0, 1, SIZE, WORTH]), min_size=1, max_size=60),
    st.integers(2, 5),
)
def test_results_come_in_the_order_of_the_items(sizes: list[int], jobs: int) -> None:
    """However the items are dealt, and however many processes there are."""
    results = deal(range(len(sizes)), work, size=sizes.__getitem__, jobs=jobs)
    assert taken(results) == dealt(len(sizes), work, 1)
    assert no_children()


def test_many_items_are_done_though_few_may_be_ahead() -> None:
    """More chunks than may be begun, the first of which takes longest."""

    def slow(item: int) -> tuple[bytes, Iterable[bytes]]:
        time.sleep(0.3 if item == 0 else 0)
        return work(item)

    assert dealt(200, slow, 2, WORTH) == dealt(200, work, 1)


def where(item: int) -> tuple[bytes, Iterable[bytes]]:
    """Say which process does it."""
    del item
    return b"%d" % os.getpid(), ()


def test_few_bytes_are_done_by_this_process() -> None:
    """Others would cost more than they bring; so it is for one job, and for one item."""
    here = b"%d" % os.getpid()
    for items, jobs, size in ((10, 4, 1000), (10, 1, WORTH), (1, 4, WORTH)):
        notes = {note for _, note, _, _ in dealt(items, where, jobs, size)}
        assert notes == {here}
    assert here not in {note for _, note, _, _ in dealt(10, where, 2)}


def test_an_item_that_fails_fails_alone() -> None:
    """Its result has the error, and no bytes."""

    def fail(item: int) -> tuple[bytes, Iterable[bytes]]:
        if item == 3:
            raise AgentsdirError("three is refused")
        return work(item)

    for jobs in (1, 2):
        given = dealt(20, fail, jobs)
        assert given[3] == (3, b"", b"", "three is refused")
        assert given[:3] + given[4:] == dealt(20, work, 1)[:3] + dealt(20, work, 1)[4:]


def test_what_is_no_refusal_is_raised_here() -> None:
    """A fault of the program shows as it does in one process, after what came before it."""

    def break_off(item: int) -> tuple[bytes, Iterable[bytes]]:
        if item == 5:
            raise ZeroDivisionError("a fault")
        return work(item)

    given: list[int] = []
    with pytest.raises(ZeroDivisionError, match="a fault"):
        given.extend(one.item for one in deal(range(20), break_off, size=lambda _: SIZE, jobs=2))
    assert given in ([], [0, 1, 2, 3, 4])
    assert no_children()


@pytest.mark.parametrize("victims", [{7}, {0}, {19}, {4, 5, 6}, set(range(20))])
def test_an_item_that_ends_its_process_is_lost_alone(victims: set[int]) -> None:
    """It is tried twice; all others are done, in order."""
    here = os.getpid()

    def die(item: int) -> tuple[bytes, Iterable[bytes]]:
        if item in victims:
            assert os.getpid() != here
            os.kill(os.getpid(), signal.SIGKILL)
        return work(item)

    expected = dealt(20, work, 1)
    for number in victims:
        expected[number] = number, b"", b"", TWICE
    assert dealt(20, die, 2) == expected
    assert no_children()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_once_costs_nothing(tmp_path: Path, number: int) -> None:
    """As by a system that is short of memory: what it had is done again."""

    def die_once(item: int) -> tuple[bytes, Iterable[bytes]]:
        if item in (3, 11):
            with suppress(FileExistsError):
                (tmp_path / str(item)).touch(exist_ok=False)
                os.kill(os.getpid(), number)
        return work(item)

    assert dealt(20, die_once, 2) == dealt(20, work, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"3", "11"}
    assert no_children()


def test_ctrl_c_is_taken_by_this_process_alone() -> None:
    """It reaches all that a terminal has; the others are then ended at once."""
    here = os.getpid()

    def interrupt(item: int) -> tuple[bytes, Iterable[bytes]]:
        os.kill(os.getpid(), signal.SIGINT)
        if item == 2:
            os.kill(here, signal.SIGINT)
            time.sleep(60)
        return work(item)

    with pytest.raises(KeyboardInterrupt):
        dealt(20, interrupt, 2)
    assert no_children()


def test_processes_end_when_the_results_are_no_longer_wanted() -> None:
    """A closed pipe, or an error elsewhere, leaves none behind, and no open files."""
    before = set(Path("/proc/self/fd").iterdir())
    results = deal(range(100), work, size=lambda _: SIZE, jobs=3)
    assert next(results).item == 0
    assert not no_children()
    results.close()
    assert no_children()
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_without_a_place_for_scratch_files_this_process_does_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same results, later."""
    expected = dealt(20, work, 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert dealt(20, work, 2) == expected


def test_without_room_for_results_this_process_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk that does not fit is done again here, from its first item."""
    expected = dealt(20, work, 1)
    full = partial(open, "/dev/full", "r+b")
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert dealt(20, work, 2) == expected


def test_without_processes_this_process_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may have as many as the system allows."""
    expected = dealt(20, work, 1)

    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    assert dealt(20, work, 2) == expected


def test_chunks_hold_all_items_once() -> None:
    """In order, none of them empty."""
    for sizes in ([], [5], [0, 0, 0], [WORTH] * 7, [1] * 1000 + [WORTH] + [1] * 1000):
        runs = workers._chunks(sizes, 3)
        assert [at for run in runs for at in run] == list(range(len(sizes)))
        assert all(runs)


def test_a_result_that_is_not_read_is_passed_over() -> None:
    """The next one begins where it should."""
    notes = [one.note for one in deal(range(20), work, size=lambda _: SIZE, jobs=2)]
    assert notes == [b"note %d" % item for item in range(20)]


def test_a_process_has_no_standard_output() -> None:
    """What an adapter prints by mistake stands between no blocks."""

    def chatty(item: int) -> tuple[bytes, Iterable[bytes]]:
        os.write(1, b"chatter\n")
        return work(item)

    with tempfile.TemporaryFile() as output:
        kept = os.dup(1)
        os.dup2(output.fileno(), 1)
        try:
            dealt(20, partial(chatty), 2)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        assert os.pread(output.fileno(), 100, 0) == b""
