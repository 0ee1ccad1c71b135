"""Lines that were lost: who is missed, for how long, and what takes the place of a line."""

from __future__ import annotations

from iris_py.federation.lost_links import LOST_MAX, LOST_S, LostLines


def gateways(lost: LostLines, now: float = 0.0) -> list[str]:
    return [str(each["gateway"]) for each in lost.status(now)]


def test_a_lost_line_is_missed_with_its_reason_until_its_gateway_is_back() -> None:
    lost = LostLines()
    lost.add(b"\x01", "10.0.0.1", "nothing heard for 10 s", 5.0)
    assert lost.status(7.0) == [{"gateway": "01", "address": "10.0.0.1", "reason": "nothing heard for 10 s", "s_ago": 2.0}]
    lost.add(b"\x02", "10.0.0.2", "reset", 6.0)
    lost.found(b"\x01", is_new=True)
    assert gateways(lost, 7.0) == ["02"]


def test_a_new_gateway_takes_the_place_of_the_one_that_was_lost_first() -> None:
    lost = LostLines()
    for number in (1, 2):
        lost.add(bytes([number]), "", "", 0.0)
    lost.found(b"\x09", is_new=False)  # a second line to a gateway that is there
    assert gateways(lost) == ["01", "02"]
    lost.found(b"\x09", is_new=True)
    assert gateways(lost) == ["02"]
    lost.found(b"\x0a", is_new=True)
    lost.found(b"\x0b", is_new=True)
    assert gateways(lost) == []


def test_nobody_is_missed_for_ever_and_so_many_at_most() -> None:
    lost = LostLines()
    for number in range(LOST_MAX + 3):
        lost.add(bytes([number]), "", "", float(number))
    assert len(gateways(lost)) == LOST_MAX
    assert gateways(lost)[0] == "03"
    assert len(gateways(lost, LOST_S + 10.0)) == LOST_MAX + 3 - 10
