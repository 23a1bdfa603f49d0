"""Adapters that tests install, and the stubs from which their sessions and providers inherit."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

# As text: an installed module imports nothing of the tests.
_STUBS = '''
class StubSession:
    """A session without a program."""

    def __init__(self, spec):
        self.spec = spec

    def interrupt(self):
        return iter(())

    def suspend(self):
        return b""

    def stop(self):
        pass

    def transcripts(self):
        return []


class StubProvider:
    """A provider whose client has no files. A subclass has `create`."""

    option_names = ()
    default_model = ""
    runs_program = True

    def restore(self, spec, state):
        return self.create(spec)

    def fork(self, transcripts, old_id, new_id, report):
        return iter(())

    def native_files(self, spec):
        return []

    def materialize(self, spec):
        return []

    def is_continuation(self, saved, present, *, ours):
        return ours

    def workspace_files(self, profile):
        return {}
'''


@contextmanager
def published(site: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str) -> Iterator[None]:
    """Install an adapter in `site` within the block. Its module is the stubs and `code`."""
    module = f"plugin_{name}"
    info = site / f"{module}-1.dist-info"
    info.mkdir(parents=True)
    (site / f"{module}.py").write_text(_STUBS + code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    entry = f"[agentsdir.adapters]\n{name} = {module}:ARCHITECTURE\n"
    (info / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(site))
    try:
        yield
    finally:
        sys.modules.pop(module, None)
