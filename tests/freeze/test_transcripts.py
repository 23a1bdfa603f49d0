"""`parse` makes of every transcript what it made when these hashes were recorded.

Of the fixtures, and of the recordings of real clients where these lie beside the repository.
`python tests/freeze/record.py fixtures corpus interactive` records them anew; other tests say in
what a transcript's blocks are right, these only whether they are the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import transcripts


@pytest.mark.parametrize("name", transcripts.FOLDERS)
def test_every_transcript_is_read_as_it_was(name: str) -> None:
    """A line is a transcript: exit code, hashes of blocks, of the report, and with --hidden."""
    folder = transcripts.FOLDERS[name]
    if not folder.is_dir():
        pytest.skip("the recordings of real clients are not here")
    recorded = transcripts.recorded(name).read_text(encoding="utf-8").splitlines()
    now = list(transcripts.lines_of(folder))
    gone = [f"was: {line}" for line in recorded if line not in set(now)]
    new = [f"is:  {line}" for line in now if line not in set(recorded)]
    assert gone + new == []
    assert now == recorded
