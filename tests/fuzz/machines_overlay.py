"""The overlay and the failure detector, told sequences of valid messages by insiders, with the numbers at the ends of ranges.

The listeners are those of tests/property: they look that everything which an honest node says is what others take, and that no
table grows over its bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from iris_overlay.detector.messages import INCARNATION_MAX, SEQUENCE_MAX, pack_address
from iris_overlay.groups.messages import GroupMessage
from iris_overlay.ring.messages import RingMessage
from tests.fuzz.oracles import Memory, Turn, is_weighed
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target
from tests.fuzz.values import Values
from tests.property import test_detector_lies as detector_lies
from tests.property import test_overlay_lies as overlay_lies
from tests.unit.overlay.overlays import LOCAL, make_info

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId

#: Steps of one input: enough to fill what there is per peer and group, few enough for some hundred inputs in a second.
STEPS_MAX = 60
PEERS, GROUPS = overlay_lies.PEERS, overlay_lies.GROUPS
VALUES = Values([*PEERS, LOCAL, make_info(9)], GROUPS)
GROUP_MESSAGES, RING_MESSAGES = get_args(GroupMessage), get_args(RingMessage)
USES = overlay_lies.USES
IDS: list[NodeId] = [LOCAL.id, *(contact.id for contact in detector_lies.CONTACTS)]
ADDRESSES = [
    pack_address(address) for address in (None, ("10.0.0.1", 7000), ("0.0.0.0", 1), ("255.255.255.255", 65535), ("::1", 1))
]


def run_overlay(data: bytes) -> None:
    """Tell an overlay with some neighbours anything that insiders can say."""
    source = Source(data)
    listener, turn = overlay_lies.Listener(), Turn()
    for _ in range(STEPS_MAX):
        if source.is_empty:
            break
        step = overlay_step(source)
        with turn:
            listener.take(step)
        listener.check()
    if is_weighed(data):
        Memory(listener.overlay).check(16 * len(data))  # a byte can name a peer with all its addresses


def overlay_step(source: Source) -> tuple[str, Any, Any, Any]:
    """Return what happens next: see `test_overlay_lies.STEPS`."""
    choice = source.byte()
    if choice < 96:
        message = VALUES.message(source.choose(GROUP_MESSAGES), source)
        return "group", source.choose(PEERS), message, source.flag()
    if choice < 128:
        message = VALUES.message(source.choose(GROUP_MESSAGES), source)
        return "routed", source.choose(PEERS), message, source.choose(GROUPS)
    if choice < 208:
        message = VALUES.message(source.choose(RING_MESSAGES), source)
        return "ring", source.choose(PEERS), message, source.flag()
    if choice < 240:
        return "wait", None, None, source.pause()
    return "use", None, source.choose(GROUPS), source.choose(USES)


def run_detector(data: bytes) -> None:
    """Tell a failure detector anything that peers can say."""
    source = Source(data)
    listener, turn = detector_lies.Listener(), Turn()
    for _ in range(4 * STEPS_MAX):
        if source.is_empty:
            break
        kind = source.choose(("ping", "ack", "request", "wait"))
        sequence = None if source.flag() else source.number(0, SEQUENCE_MAX)
        accused = None if source.flag() else source.number(0, INCARNATION_MAX)
        incarnation = source.number(0, INCARNATION_MAX)
        step = kind, source.choose(IDS), source.choose(IDS), sequence, incarnation, accused, source.choose(ADDRESSES)
        with turn:
            listener.take(step)
        listener.check()
    if is_weighed(data):
        Memory(listener.detector).check(len(data))


SEEDS = (bytes(range(256)), bytes(range(255, 0, -1)), b"\x00\x11\x22\x33\x44\x55\x66\x77" * 30)
TARGETS = (
    Target("overlay", run_overlay, Kind.MACHINE, SEEDS, 2000),
    Target("detector", run_detector, Kind.MACHINE, SEEDS, 2000),
)
