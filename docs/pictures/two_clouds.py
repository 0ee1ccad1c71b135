"""Draw the two clouds of `iris demo --federation`, and who is killed when.

``python docs/pictures/two_clouds.py`` writes the SVG beside it. Names, numbers and kill points are those of the demo itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drawing import box, line, picture, text

from iris_py.cli.demo.federation_crew import (
    FAR,
    FAR_GATEWAY_KILL_AT,
    GATEWAYS,
    INSIDE,
    MEMBER_KILL_AT,
    NEAR,
    NEAR_GATEWAY_KILL_AT,
    OUTSIDE,
)

TARGET: Final = Path(__file__).with_name("two-clouds.svg")

#: As many as the demo starts where nothing else is asked for.
MEMBERS: Final = 3
WIDTH: Final = 860
HEIGHT: Final = 360
CLOUD_TOP: Final = 40
CLOUD_HEIGHT: Final = 280
BOX_WIDTH: Final = 130
BOX_HEIGHT: Final = 48
#: Left sides: of the two clouds, and of the columns of boxes in them.
NEAR_LEFT, NEAR_WIDTH = 20, 340
FAR_LEFT, FAR_WIDTH = 500, 340
JOB_LEFT, NEAR_GATEWAYS_LEFT = 36, 214
FAR_GATEWAYS_LEFT, MEMBERS_LEFT = 516, 694
MIDDLE: Final = CLOUD_TOP + 130
GATEWAYS_APART: Final = 120
MEMBERS_APART: Final = 80


@dataclass(frozen=True, slots=True)
class Box:
    """A process.

    Attributes:
        left: Its left side.
        middle: Half its height.
        title: What it is.
        text: What it does.
        kill_at: The part of the files after which it is killed; None if it is not.
    """

    left: int
    middle: int
    title: str
    text: str
    kill_at: float | None = None

    def draw(self) -> list[str]:
        top, kind = self.middle - BOX_HEIGHT // 2, "box" if self.kill_at is None else "dead"
        centre, right = self.left + BOX_WIDTH // 2, self.left + BOX_WIDTH
        parts = [box(self.left, top, BOX_WIDTH, BOX_HEIGHT, kind)]
        parts.append(text(centre, self.middle - 4, self.title))
        parts.append(text(centre, self.middle + 13, self.text, "small"))
        if self.kill_at is not None:
            parts += [line((right - 6, top - rise), (right + 6, top + rise), "red") for rise in (-6, 6)]
            what = f"SIGKILL at {self.kill_at:.0%}"
            parts.append(text(centre, top + BOX_HEIGHT + 14, what, "kill"))
        return parts


def draw() -> str:
    """Return the picture as SVG."""
    parts = []
    for left, width, name, what in (
        (NEAR_LEFT, NEAR_WIDTH, NEAR, "the cloud of the job"),
        (FAR_LEFT, FAR_WIDTH, FAR, "the cloud of the cluster"),
    ):
        parts.append(box(left, CLOUD_TOP, width, CLOUD_HEIGHT, "area", 24))
        title = f"{name}: {what}"
        parts.append(text(left + width / 2, 26, title, "title"))
    job, near, far, members = boxes()
    parts += [connect("blue", job, gateway) for gateway in near]
    parts += [connect("green", one, other) for one in near for other in far]
    parts += [connect("blue", gateway, member) for gateway in far for member in members]
    for each in (job, *near, *far, *members):
        parts += each.draw()
    bottom = CLOUD_TOP + CLOUD_HEIGHT
    export = f'exports "{INSIDE}" as "{OUTSIDE}"'
    parts.append(text(FAR_LEFT + 16, bottom - 10, export, "small", "start"))
    note = "blue: under the secret of one network; green: under the keys of both clouds; red: killed after so many of the files"
    parts.append(text(NEAR_LEFT, bottom + 28, note, "small", "start"))
    return picture(WIDTH, HEIGHT, "Two clouds, joined by gateways, of which some are killed", parts)


def boxes() -> tuple[Box, list[Box], list[Box], list[Box]]:
    """Return the job, the gateways of its cloud, those of the other one, and the members there."""
    job = Box(JOB_LEFT, MIDDLE, "the job", f'asks "{OUTSIDE}@{FAR}"')
    near = column(NEAR_GATEWAYS_LEFT, GATEWAYS, GATEWAYS_APART, "iris gateway", NEAR, GATEWAYS - 1, NEAR_GATEWAY_KILL_AT)
    far = column(FAR_GATEWAYS_LEFT, GATEWAYS, GATEWAYS_APART, "iris gateway", FAR, GATEWAYS - 1, FAR_GATEWAY_KILL_AT)
    return job, near, far, column(MEMBERS_LEFT, MEMBERS, MEMBERS_APART, "a member", INSIDE, 0, MEMBER_KILL_AT)


def column(left: int, count: int, apart: int, title: str, text: str, victim: int, kill_at: float) -> list[Box]:
    """Return boxes below each other, one of which is killed."""
    top = MIDDLE - apart * (count - 1) // 2
    return [Box(left, top + number * apart, title, text, kill_at if number == victim else None) for number in range(count)]


def connect(kind: str, one: Box, other: Box) -> str:
    """Return a line from the right side of a box to the left side of another one."""
    x1, y1, x2, y2 = one.left + BOX_WIDTH, one.middle, other.left, other.middle
    return line((x1, y1), (x2, y2), kind)


if __name__ == "__main__":
    TARGET.write_text(draw())
