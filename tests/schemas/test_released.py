"""A schema that was released stays what it was.

``python tests/schemas/test_released.py`` records the hashes for the version in the making.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from agentsdir.formats.version import VERSION

SCHEMAS = Path(__file__).parents[2] / "schemas"
RELEASED = SCHEMAS / "released.json"


def hashes() -> dict[str, str]:
    """Return the SHA-256 of every schema file by its path below `schemas/`."""
    return {
        path.relative_to(SCHEMAS).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in sorted(SCHEMAS.glob("v*/*.schema.json"))
    }


def recorded() -> dict[str, dict[str, str]]:
    """Return version → path → hash, as released."""
    found: dict[str, dict[str, str]] = json.loads(RELEASED.read_text())
    return found


@pytest.mark.feature("C-09")
@pytest.mark.parametrize("version", sorted(recorded()))
def test_a_released_schema_is_unchanged(version: str) -> None:
    """Every file of a version has the hash that was recorded."""
    now = hashes()
    changed = [path for path, digest in recorded()[version].items() if now.get(path) != digest]

    assert not changed, (
        f"{', '.join(changed)} differ from what {version} recorded. Released: add a new file "
        "instead. Not yet released: run `python tests/schemas/test_released.py`"
    )


def test_this_version_records_every_schema() -> None:
    """No file is left out of the record."""
    assert set(recorded()[VERSION]) == set(hashes()), (
        "run `python tests/schemas/test_released.py` to record the schemas of this version"
    )


if __name__ == "__main__":
    versions = recorded() if RELEASED.exists() else {}
    versions[VERSION] = hashes()
    RELEASED.write_text(json.dumps(versions, indent=2) + "\n")
