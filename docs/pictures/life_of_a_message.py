"""Draw the way of a request and its reply through the layers.

``python docs/pictures/life_of_a_message.py`` writes the SVG beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drawing import box, line, picture, text

TARGET: Final = Path(__file__).with_name("life-of-a-message.svg")

#: The layers from the top to the bottom: the folder, what it does for the caller, and for the member. The numbers are those of
#: the steps in docs/life-of-a-message.md.
LAYERS: Final = (
    ("api/", "1  Node.request: a future", "10  Server: the handler runs"),
    ("node/", "2  NodeCore.request", "8  Inbound: decrypts the body"),
    ("patterns/", "3  Requester chooses a member", "9  Service queues, rejects or starts"),
    ("peers/", "4, 5  Outbound collects, encrypts", "8  Group: the key of the cluster"),
    ("link/", "6  Link: lanes, frames, records", "7  Link: records, frames"),
    ("net/", "6  LinkStream writes the socket", "7  LinkStream reads the socket"),
)
WIDTH: Final = 860
COLUMN_WIDTH: Final = 320
BOX_HEIGHT: Final = 44
STEP: Final = 64
TOP: Final = 56
LEFT: Final = 30
RIGHT: Final = WIDTH - LEFT - COLUMN_WIDTH
#: Where the arrows of a column run, from its left side: the request down at the caller and up at the member, then the reply.
REQUEST_AT: Final = 60
REPLY_AT: Final = 260


@dataclass(frozen=True, slots=True)
class Arrow:
    """A straight arrow.

    Attributes:
        kind: ``request`` or ``reply``.
        start: Where it begins: (x, y).
        end: Where it points to.
    """

    kind: str
    start: tuple[int, int]
    end: tuple[int, int]

    def draw(self) -> str:
        return line(self.start, self.end, "blue ask" if self.kind == "request" else "green tell")


def draw() -> str:
    """Return the picture as SVG."""
    height = TOP + STEP * len(LAYERS) + 40
    parts = []
    for left, title in ((LEFT, "the caller"), (RIGHT, "the member")):
        parts.append(text(left + COLUMN_WIDTH / 2, 30, title, "title"))
    for number, (folder, caller, member) in enumerate(LAYERS):
        top = TOP + number * STEP
        for left, what in ((LEFT, caller), (RIGHT, member)):
            parts.append(box(left, top, COLUMN_WIDTH, BOX_HEIGHT))
            parts.append(text(left + COLUMN_WIDTH / 2, top + 27, what))
        parts.append(text(WIDTH / 2, top + 27, folder, "small mono"))
    parts += [arrow.draw() for arrow in arrows()]
    bottom = TOP + STEP * len(LAYERS) + 22
    parts.append(text(WIDTH / 2, bottom - 26, "one TCP connection, encrypted"))
    parts.append(text(LEFT, bottom, "blue: the request; green: the reply (step 11)", "small", "start"))
    return picture(WIDTH, height, "The way of a request and its reply through the layers of two nodes", parts)


def arrows() -> list[Arrow]:
    """Return the ways: down at the one side, across, and up at the other."""
    found = []
    for number in range(len(LAYERS) - 1):
        above, below = TOP + number * STEP + BOX_HEIGHT, TOP + (number + 1) * STEP
        found.append(Arrow("request", (LEFT + REQUEST_AT, above), (LEFT + REQUEST_AT, below)))
        found.append(Arrow("request", (RIGHT + REQUEST_AT, below), (RIGHT + REQUEST_AT, above)))
        found.append(Arrow("reply", (RIGHT + REPLY_AT, above), (RIGHT + REPLY_AT, below)))
        found.append(Arrow("reply", (LEFT + REPLY_AT, below), (LEFT + REPLY_AT, above)))
    middle = TOP + (len(LAYERS) - 1) * STEP + BOX_HEIGHT // 2
    found.append(Arrow("request", (LEFT + COLUMN_WIDTH, middle - 12), (RIGHT, middle - 12)))
    found.append(Arrow("reply", (RIGHT, middle + 14), (LEFT + COLUMN_WIDTH, middle + 14)))
    return found


if __name__ == "__main__":
    TARGET.write_text(draw())
