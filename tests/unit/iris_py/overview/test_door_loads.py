"""The doors of a network, in the lines and the text that `iris top` prints once."""

from __future__ import annotations

from iris_py.doors.door_messages import DoorAnnouncement, DoorStatus
from iris_py.doors.door_reports import DoorFigures
from iris_py.overview.door_loads import DoorReadings, door_lines, say_doors

WEB, NATS, MOUNTED = "1a" * 16, "2b" * 16, "3c" * 16


def status(node: str, kind: str, address: str, figures: DoorFigures, *, is_draining: bool = False) -> tuple[str, DoorStatus]:
    return node, DoorStatus(DoorAnnouncement(id=node[:16], kind=kind, address=address, is_draining=is_draining), figures)


def test_each_door_says_its_clients_and_rates_and_only_the_troubles_that_it_has() -> None:
    doors = DoorReadings()
    for number, now in ((100, 10.0), (150, 12.0)):
        doors.take(
            [
                status(WEB, "web", "https://iris.example", DoorFigures(clients=1, messages_in=number, messages_out=9)),
                status(
                    NATS,
                    "nats",
                    "127.0.0.1:4222",
                    DoorFigures(clients=12, messages_out=2 * number, refused=2, ended=1, dropped=number, waiting_bytes=2048),
                    is_draining=True,
                ),
            ],
            now,
        )
    lines = door_lines(doors.loads)
    assert [(line.node, line.clients, line.in_per_s, line.out_per_s, line.lost_per_s) for line in lines] == [
        (NATS, 12, 0.0, 50.0, 25.0),
        (WEB, 1, 25.0, 0.0, 0.0),
    ], "the door with most clients comes first"
    assert say_doors(lines) == [
        "nats at 127.0.0.1:4222: 12 clients, 0/s in, 50/s out, 2.0 KiB waiting, 2 refused, 1 ended, 150 lost, closing",
        "web at https://iris.example: 1 client, 25/s in, 0/s out",
    ]


def test_a_door_with_one_answer_or_another_server_has_no_rates_or_address() -> None:
    doors = DoorReadings()
    doors.take([status(MOUNTED, "web", "", DoorFigures(clients=2))], 10.0)
    (line,) = door_lines(doors.loads)
    assert (line.in_per_s, line.out_per_s, line.lost_per_s) == (None, None, None)
    assert say_doors([line]) == [f"web at {MOUNTED[:8]}: 2 clients"]


def test_a_door_cannot_write_to_the_terminal() -> None:
    doors = DoorReadings()
    doors.take([status(NATS, "na\x1b[2Jts", "a\nb", DoorFigures(clients=0))], 10.0)
    (text,) = say_doors(door_lines(doors.loads))
    assert "\x1b" not in text
    assert "\n" not in text
