"""The other doors of a network: known by their announcements, and forgotten with their nodes."""

from __future__ import annotations

from iris_py.doors.door_messages import DoorAnnouncement, DoorGreeting
from iris_py.doors.door_table import ADDRESSES_MAX, DOORS_MAX, DoorTable

OWN, OTHER, THIRD = "0" * 16, "1" * 16, "2" * 16
EMPTY, SOME, MORE = bytes(8), b"s" * 8, b"m" * 8


def greeting(door: str, revocations: bytes = EMPTY, kind: str = "web", *, is_draining: bool = False) -> DoorGreeting:
    return DoorGreeting(DoorAnnouncement(id=door, kind=kind, address=f"at-{door}", is_draining=is_draining), revocations)


def test_doors_of_a_kind_are_listed_until_they_drain() -> None:
    table = DoorTable(OWN)
    table.hear("a", greeting(OTHER), EMPTY)
    table.hear("a", greeting(THIRD, kind="nats"), EMPTY)
    table.hear("a", greeting(OWN), EMPTY)
    assert [each.announcement.id for each in table.all] == [OTHER, THIRD]
    assert [each.id for each in table.of_kind("web")] == [OTHER]
    version = table.version
    table.hear("a", greeting(OTHER), EMPTY)
    assert table.version == version
    table.hear("a", greeting(OTHER, is_draining=True), EMPTY)
    assert table.version == version + 1
    assert table.of_kind("web") == ()


def test_clients_are_told_few_addresses_and_nothing_else() -> None:
    table = DoorTable(OWN)
    texts = (
        "b.example:1",
        "[::1]:2",
        "a.example:1",
        "",
        "b.example:0",
        "a b:1",
        "x:1\r\nMSG a 1 1",
        '"],"ldm":true',
        "b.example:1",
    )
    for number, text in enumerate((*texts, *(f"d{number:03}:1" for number in range(ADDRESSES_MAX)))):
        table.hear(f"n{number}", DoorGreeting(DoorAnnouncement(id=f"{number:016x}", kind="nats", address=text), EMPTY), EMPTY)
    told = table.addresses("nats")
    assert told[:3] == ("[::1]:2", "a.example:1", "b.example:1")
    assert len(told) == ADDRESSES_MAX
    assert table.addresses("web") == ()


def test_revocations_are_taken_over_once_for_each_digest() -> None:
    table = DoorTable(OWN)
    assert not table.hear("a", greeting(OTHER), EMPTY)
    assert table.hear("a", greeting(OTHER, SOME), EMPTY)
    assert table.hear("a", greeting(OTHER, SOME), EMPTY)
    table.note_copied(OTHER, SOME)
    assert not table.hear("a", greeting(OTHER, SOME), EMPTY)
    assert not table.hear("a", greeting(OTHER, MORE), MORE)
    assert table.hear("a", greeting(OTHER, MORE), SOME)


def test_a_door_is_forgotten_with_its_node() -> None:
    table = DoorTable(OWN)
    table.hear("a", greeting(OTHER, SOME), EMPTY)
    table.note_copied(OTHER, SOME)
    table.hear("b", greeting(THIRD), EMPTY)
    table.keep({"b", "c"})
    assert [each.announcement.id for each in table.all] == [THIRD]
    assert table.hear("a", greeting(OTHER, SOME), EMPTY)


def test_nobody_takes_the_name_of_a_door() -> None:
    table = DoorTable(OWN)
    table.hear("a", greeting(OTHER), EMPTY)
    table.hear("b", greeting(OTHER, kind="nats"), EMPTY)
    assert [(each.node, each.announcement.kind) for each in table.all] == [("a", "web")]


def test_the_number_of_doors_is_bounded() -> None:
    table = DoorTable(OWN)
    for number in range(DOORS_MAX + 5):
        table.hear("a", greeting(f"{number + 1:016x}"), EMPTY)
    assert len(table.all) == DOORS_MAX
