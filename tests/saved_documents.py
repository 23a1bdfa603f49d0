"""Documents of `inspect --saved`, read as the tests compare them."""

from __future__ import annotations

import base64
from typing import Any


def carried(document: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a document by their paths."""
    return {
        file["path"]: file["text"].encode()
        if "text" in file
        else base64.b64decode(file["base64"], validate=True)
        for file in document["files"]
    }
