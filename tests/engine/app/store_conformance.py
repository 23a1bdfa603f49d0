"""What every store of snapshots must do, as tests; for a store of one's own, too.

A module of tests has a class of its own for a store, which says how it is opened:

    class TestMyStore(StoreConformance):
        SOURCE = "from my_package import MyStore; store = MyStore(folder)"

`folder` is an empty folder; the same source opens the same store again, in another process too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentsdir.engine.app.session_store import MAX_ID, SessionStore
from agentsdir.formats.errors import Invalid, UsageError

IDS = [
    "user-123",
    "User-123",  # a file system may not tell it from the first
    "..",
    ".",
    "/etc/passwd",
    "../../escape",
    "a/b\\c",
    ".json",
    "%2e%2e",
    "~",
    "con",
    "nul\0byte",
    "line\nbreak",
    " ",
    "é",
    "e\u0301",  # the same letter in two code points
    "ключ",
    "会" * 100,
    "会" * 101,
    "\U0001f98a",
    "x" * MAX_ID,
    "\U0001f98a" * MAX_ID,
    "'; DROP TABLE sessions; --",
]
NO_IDS: list[Any] = ["", "x" * (MAX_ID + 1), "\ud800", None, 7, b"bytes", ("a",)]

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
SNAPSHOTS = st.dictionaries(TEXT, JSON, max_size=4)

WRITER = """
import sys
folder, name, count, source = sys.argv[1:]
exec(source)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(count)):
    store.save("shared", {"by": name, "number": number, "filling": [name] * 500})
    store.save(f"own-{name}-{number % 7}", {"number": number})
    print(number, flush=True)
"""


REFUSED = """
import resource, sys
from agentsdir.formats.errors import NotRecorded
folder, source = sys.argv[1:]
exec(source)
store.save("a", {"kept": True})
resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, 2**17))
try:
    store.save("a", {"text": "x" * 2**20})
except NotRecorded:
    print("refused")
"""


def exact(value: Any) -> str:
    """Return a value as text that tells 1 from 1.0 and from true, and shows the order of keys."""
    return json.dumps(value)


class StoreConformance:
    """Tests of one store; the class of a store sets `SOURCE`."""

    SOURCE: ClassVar[str]

    def opened(self, folder: Path) -> SessionStore:
        """Open the store of a folder."""
        found: dict[str, Any] = {"folder": str(folder)}
        exec(self.SOURCE, found)
        store: SessionStore = found["store"]
        return store

    @contextmanager
    def writing(self, folder: Path, name: str, count: int) -> Iterator[subprocess.Popen[str]]:
        """Run a process that saves into the store of a folder, from its first line of input on."""
        command = [sys.executable, "-c", WRITER, str(folder), name, str(count), self.SOURCE]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.kill()

    def test_it_is_a_session_store(self, tmp_path: Path) -> None:
        """By its methods."""
        assert isinstance(self.opened(tmp_path), SessionStore)

    def test_a_new_store_is_empty(self, tmp_path: Path) -> None:
        """And nothing is made by looking."""
        store = self.opened(tmp_path)
        assert store.list() == []
        assert store.load("user-123") is None
        assert not store.has("user-123")
        store.delete("user-123")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("session_id", IDS)
    def test_any_text_is_an_id_and_stays_inside(self, tmp_path: Path, session_id: str) -> None:
        """Whatever it would mean as a path, a pattern or a statement."""
        inside = tmp_path / "inside"
        inside.mkdir()
        store = self.opened(inside)
        store.save(session_id, {"id": session_id})
        assert store.has(session_id)
        assert store.load(session_id) == {"id": session_id}
        assert store.list() == [session_id]
        assert [path.name for path in tmp_path.iterdir()] == ["inside"]
        store.delete(session_id)
        assert not store.has(session_id)
        assert store.list() == []

    def test_ids_that_look_alike_are_apart(self, tmp_path: Path) -> None:
        """By case, by normal form, by an escape, by what stands behind the first 200 letters."""
        store = self.opened(tmp_path)
        for number, session_id in enumerate(IDS):
            store.save(session_id, {"number": number})
        assert store.list() == sorted(IDS)
        again = self.opened(tmp_path)
        for number, session_id in enumerate(IDS):
            assert again.load(session_id) == {"number": number}

    @pytest.mark.parametrize("session_id", NO_IDS)
    def test_what_is_no_id_is_refused(self, tmp_path: Path, session_id: Any) -> None:
        """By every call that takes one, and nothing is kept."""
        store = self.opened(tmp_path)
        for call in (
            lambda: store.save(session_id, {}),
            lambda: store.load(session_id),
            lambda: store.delete(session_id),
            lambda: store.has(session_id),
        ):
            with pytest.raises(UsageError) as raised:
                call()
            assert raised.value.kind == "bad-id"
        assert store.list() == []

    @pytest.mark.parametrize(
        "snapshot",
        [
            None, [], "text", {"a": {1}}, {"a": float("inf")}, {"a": 2**53}, {1: "a"},
            {"a": "\ud800"}, {"a": (1,)}, {"a": b"b"},
        ],
    )  # fmt: skip
    def test_what_is_no_json_is_refused_and_the_one_before_stays(
        self, tmp_path: Path, snapshot: Any
    ) -> None:
        """So what comes back is what went in."""
        store = self.opened(tmp_path)
        store.save("a", {"kept": True})
        with pytest.raises(Invalid) as raised:
            store.save("a", snapshot)
        assert raised.value.kind == "value-refused"
        assert store.load("a") == {"kept": True}

    def test_what_is_too_large_is_refused(self, tmp_path: Path) -> None:
        """64 MiB are, with all around it; 1 MiB is not."""
        store = self.opened(tmp_path)
        store.save("a", {"text": "x" * 2**20})
        with pytest.raises(Invalid) as raised:
            store.save("a", {"text": "x" * 2**26})
        assert raised.value.kind == "too-large"
        assert store.load("a") == {"text": "x" * 2**20}

    def test_snapshots_come_back_as_they_went_in(self) -> None:
        """With their numbers and the order of their keys, from another instance."""
        with tempfile.TemporaryDirectory() as folder:

            @settings(max_examples=40, deadline=None)
            @given(SNAPSHOTS)
            def saved(snapshot: dict[str, Any]) -> None:
                self.opened(Path(folder)).save("a", snapshot)
                assert exact(self.opened(Path(folder)).load("a")) == exact(snapshot)

            saved()

    def test_a_snapshot_is_not_shared_with_the_caller(self, tmp_path: Path) -> None:
        """What either side changes afterwards, the store does not have."""
        store = self.opened(tmp_path)
        snapshot: dict[str, Any] = {"deep": [1]}
        store.save("a", snapshot)
        snapshot["deep"].append(2)
        loaded = store.load("a")
        assert loaded == {"deep": [1]}
        loaded["deep"].append(3)
        assert store.load("a") == {"deep": [1]}

    def test_it_is_a_dictionary(self) -> None:
        """Through two instances by turns, whatever is called in which order."""
        conformance = self
        names = st.sampled_from(IDS[:6])

        class Machine(RuleBasedStateMachine):
            def __init__(self) -> None:
                super().__init__()
                self.folder = tempfile.TemporaryDirectory()
                self.stores = [conformance.opened(Path(self.folder.name)) for _ in range(2)]
                self.model: dict[str, Any] = {}

            @rule(which=st.integers(0, 1), name=names, snapshot=SNAPSHOTS)
            def save(self, which: int, name: str, snapshot: dict[str, Any]) -> None:
                self.stores[which].save(name, snapshot)
                self.model[name] = snapshot

            @rule(which=st.integers(0, 1), name=names)
            def delete(self, which: int, name: str) -> None:
                self.stores[which].delete(name)
                self.model.pop(name, None)

            @rule(which=st.integers(0, 1), name=names)
            def load(self, which: int, name: str) -> None:
                assert self.stores[which].load(name) == self.model.get(name)
                assert self.stores[which].has(name) == (name in self.model)

            @invariant()
            def lists(self) -> None:
                for store in self.stores:
                    assert store.list() == sorted(self.model)

            def teardown(self) -> None:
                self.folder.cleanup()

        limits = settings(max_examples=25, stateful_step_count=15, deadline=None)
        run_state_machine_as_test(Machine, settings=limits)  # type: ignore[no-untyped-call]

    def test_threads_use_one_store_at_once(self, tmp_path: Path) -> None:
        """None sees a half of a snapshot, none loses one."""
        store = self.opened(tmp_path)

        def work(name: str) -> None:
            for number in range(15):
                store.save("shared", {"by": name, "filling": [name] * 200})
                seen = store.load("shared")
                assert seen is not None
                assert set(seen["filling"]) == {seen["by"]}
                store.save(f"own-{name}", {"number": number})
                assert store.load(f"own-{name}") == {"number": number}
                store.delete(f"gone-{name}")
                assert f"own-{name}" in store.list()

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(work, [f"t{n}" for n in range(6)]))
        assert store.list() == [*(f"own-t{n}" for n in range(6)), "shared"]

    def test_processes_use_one_store_at_once(self, tmp_path: Path) -> None:
        """Each snapshot is whole, as one of them wrote it, and in the end all are there."""
        store = self.opened(tmp_path)
        with ExitStack() as stack:
            writers = [
                stack.enter_context(self.writing(tmp_path, f"p{number}", 20)) for number in range(4)
            ]
            for one in writers:
                begin(one)
            while any(one.poll() is None for one in writers):
                seen = store.load("shared")
                if seen is not None:
                    assert seen["filling"] == [seen["by"]] * 500
                listed = store.list()
                assert listed == sorted(listed)
            assert [one.returncode for one in writers] == [0] * 4
        own = [f"own-p{number}-{part}" for number in range(4) for part in range(7)]
        assert store.list() == [*own, "shared"]
        for number in range(4):
            saved = [store.load(f"own-p{number}-{part}") for part in range(7)]
            assert [one and one["number"] for one in saved] == [14, 15, 16, 17, 18, 19, 13]

    def test_a_disk_that_refuses_a_snapshot_leaves_the_one_before(self, tmp_path: Path) -> None:
        """It is `NotRecorded`, nothing is left over, and the next snapshot is kept."""
        done = subprocess.run(
            [sys.executable, "-c", REFUSED, str(tmp_path), self.SOURCE],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("refused\n", "")
        store = self.opened(tmp_path)
        assert store.load("a") == {"kept": True}
        assert [path for path in tmp_path.rglob("*") if "tmp" in path.name] == []
        store.save("a", {"kept": "again"})
        assert store.load("a") == {"kept": "again"}
        assert store.list() == ["a"]

    def test_a_process_that_is_killed_leaves_the_old_snapshot_or_the_new_one(
        self, tmp_path: Path
    ) -> None:
        """What it said was saved is there, and the next writer goes on."""
        for round_ in range(3):
            with self.writing(tmp_path, f"k{round_}", 100_000) as one:
                begin(one)
                assert one.stdout is not None
                for _ in range(round_ * 3 + 1):
                    said = int(one.stdout.readline())
            store = self.opened(tmp_path)
            seen = store.load("shared")
            assert seen is not None
            assert (seen["by"], seen["filling"]) == (f"k{round_}", [f"k{round_}"] * 500)
            assert seen["number"] >= said
            store.save("after", {"round": round_})
            assert "after" in store.list()


def begin(process: subprocess.Popen[str]) -> None:
    """Have a process of `StoreConformance.writing` begin to save."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
