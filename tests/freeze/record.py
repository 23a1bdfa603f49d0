"""Records what tests/freeze holds: `python tests/freeze/record.py [NAME] …`.

A NAME is that of a scene or of a file of hashes; without one, everything is recorded anew. Read the
diff before you commit it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import scene
import transcripts


def record(names: list[str]) -> None:
    """Play scenes and hash transcripts, and write what came out."""
    for path in sorted(scene.SCENES.glob("*.txt")):
        if not names or path.stem in names:
            path.write_text(scene.played(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name, folder in transcripts.FOLDERS.items():
        if folder.is_dir() and (not names or name in names):
            transcripts.recorded(name).write_text(transcripts.text_of(folder), encoding="utf-8")


if __name__ == "__main__":
    record(sys.argv[1:])
