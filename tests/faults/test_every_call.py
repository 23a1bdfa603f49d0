"""Each writing command, killed or refused at each call that it makes (SPEC.md, "Promises").

The rules stand in fault_rules.py, the faults in fault_cases.py, the commands in fault_verbs.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from fault_cases import cases, gives_back
from fault_shim import Mode
from fault_verbs import VERBS

MOST_CASES = 1750
SHOWN = 5
verbs = pytest.mark.parametrize("verb", VERBS)


@verbs
def test_a_command_without_a_fault_keeps_every_rule(rig: Any, verb: str) -> None:
    """Otherwise the faults would be blamed for it."""
    sound = rig.sound(verb)
    assert not sound.broken, sound


@verbs
def test_a_fault_at_any_call_breaks_no_rule(rig: Any, verb: str, record_property: Any) -> None:
    """Killed, refused once or from there on, or cut short: what was acknowledged stays."""
    faults = list(cases(VERBS[verb], rig.sound(verb).calls))
    record_property("cases", len(faults))
    broken = [verdict for verdict in rig.run(verb, faults) if verdict.broken]
    told = "\n\n".join(map(str, broken[:SHOWN]))
    assert not broken, f"{len(broken)} of {len(faults)} cases, such as:\n{told}"


def test_every_call_of_every_command_has_its_cases(rig: Any, record_property: Any) -> None:
    """No command makes fewer calls than it must, and all cases together stay within the budget."""
    total = 0
    for name, verb in VERBS.items():
        calls = rig.sound(name).calls
        faults = list(cases(verb, calls))
        modes = Counter(fault.mode for fault in faults)
        record_property(name, f"calls {len(calls)}, cases {len(faults)}")
        assert len(calls) >= verb.fewest, f"{name} makes {len(calls)} calls"
        every = {call.index for call in calls}
        refused = {fault.at for fault in faults if fault.mode is Mode.FAIL_ONCE}
        assert modes[Mode.KILL] == len(every)
        assert refused == {call.index for call in calls if not gives_back(call)}
        assert modes[Mode.FAIL_FROM] >= len(every) // 2
        writes = sum(call.name == "write" for call in calls)
        assert modes[Mode.SHORT_THEN_FAIL] >= modes[Mode.SHORT_THEN_KILL] == writes
        assert writes or verb.takes_away
        total += len(faults)
    record_property("cases", total)
    assert 1000 <= total <= MOST_CASES
