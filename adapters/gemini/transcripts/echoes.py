"""What a log says twice in a row: the results of a message's calls, told again to the model.

They are most of a log, so their second telling is compared with the first and not decoded.
"""

from __future__ import annotations

from typing import Any

import orjson

# How such a turn goes on behind its id, time and type, and how far those go at most.
_CONTENT = b'"content":[{"functionResponse":'
_BEGINNING = 512
_END = b"}\n"


class Echoes:
    """Decodes the rows of a log, in their order."""

    def __init__(self) -> None:
        # What the calls of the last row gave; empty if it made none.
        self._given: list[Any] = []

    def decode(self, data: bytes) -> Any:
        """Return the value of a row. Raises `JSONDecodeError`."""
        if self._given:
            begin = data.find(_CONTENT, 0, _BEGINNING)
            if begin > 0:
                given, self._given = self._given, []
                at = begin + len(b'"content":')
                # The same bytes mean the same value.
                if data.endswith(_END) and data[at : -len(_END)] == orjson.dumps(given):
                    value = orjson.loads(data[:begin] + b'"content":null}')
                    value["content"] = given
                    return value
        value = orjson.loads(data)
        if type(value) is dict and "toolCalls" in value:
            self._given = _given(value["toolCalls"])
        return value


def _given(calls: Any) -> list[Any]:
    if not isinstance(calls, list):
        return []
    results = [call.get("result") for call in calls if isinstance(call, dict)]
    return [part for result in results if isinstance(result, list) for part in result]
