"""The golden agent is what agentsdir writes, and its damaged copies are what it finds."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import golden
import orjson
import pytest

COPIES = sorted(path.name for path in (golden.FOLDER / "damaged").iterdir())
LINES = (golden.ROOT / golden.LOG).read_bytes().splitlines()


def test_the_golden_agent_is_what_agentsdir_writes_today(tmp_path: Path) -> None:
    """Byte for byte: log, transcript and derived files."""
    golden.make(tmp_path / "root")

    assert golden.files_of(tmp_path / "root") == golden.files_of(golden.ROOT)


def test_the_hashes_of_the_golden_log_can_be_checked_with_a_library_for_sha256_alone() -> None:
    """As the first program of an implementer does it: each `prev` names the line before."""
    seen = "0" * 16
    for number, line in enumerate(LINES, 1):
        record = orjson.loads(line)
        assert (record["seq"], record["prev"]) == (number, seen)
        seen = sha256(line).hexdigest()[:16]

    state = (golden.ROOT / golden.LOG).with_name("state.json").read_bytes()
    document = orjson.loads(state)
    assert document["lastHash"] == seen
    without = state.replace(b',\n  "digest": "%s"' % document["digest"].encode(), b"")
    assert document["digest"] == sha256(without).hexdigest()[:16]


def test_a_sound_golden_agent_has_no_finding(tmp_path: Path) -> None:
    """Neither `inspect` nor `validate` says anything."""
    sound = (golden.ROOT / golden.LOG).read_bytes()

    assert set(golden.findings(sound, tmp_path / "root").values()) == {b""}


@pytest.mark.parametrize("name", COPIES)
def test_a_damaged_copy_has_exactly_the_findings_beside_it(name: str, tmp_path: Path) -> None:
    """Ids, severities, lines, byte offsets, lengths and messages, in this order."""
    folder = golden.FOLDER / "damaged" / name
    log = (folder / "events.jsonl").read_bytes()

    assert log == golden.damaged_log(name)
    for file, found in golden.findings(log, tmp_path / "root").items():
        assert found == (folder / file).read_bytes(), file
        assert found, file


def test_each_damage_has_its_copy_and_its_row_in_the_readme() -> None:
    """Five at least."""
    readme = (golden.FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(golden.DAMAGES) == set(COPIES)
    assert len(COPIES) >= 5
    assert all(f"| `{name}` |" in readme for name in COPIES)
