"""The market of `iris demo --web`: prices, and the load of its clusters and topics. Both change all the time."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.errors import IrisError

if TYPE_CHECKING:
    from typing import NoReturn

    import iris_py

__all__ = ["CLUSTER", "PRICES", "SYMBOLS", "Market", "Price", "Quote", "price_of"]

CLUSTER: Final = "quotes"
#: The first tokens of the topics; the last one is the symbol.
PRICES: Final = "news.prices"
#: The symbols, each with the middle of its price.
SYMBOLS: Final = {"ASTER": 42.0, "CROCUS": 120.0, "FREESIA": 7.5, "IRIS": 260.0, "TULIP": 18.0}
#: Time between two prices of a symbol (seconds). Too small: a page that nobody can read; too large: it seems to stand still.
PRICE_S: Final = 0.5
#: Requests per second, lowest and highest, and the time from one high to the next (seconds). Too large: the demo takes a whole
#: processor; too small: the charts show nothing.
REQUESTS_PER_S: Final = (20.0, 80.0)
LOAD_PERIOD_S: Final = 40.0
#: Time for a request to wait for its member (seconds): longer than the detection of a killed member.
TIMEOUT_S: Final = 10.0
#: Requests under way. Too small: a killed member stops the others; too large: memory, if all members are gone.
UNDER_WAY_MAX: Final = 200


class Price(msgspec.Struct, frozen=True):
    """The payload of a message about a price."""

    price: float
    change: float
    """The difference from the middle of the price, in percent."""


class Quote(msgspec.Struct, frozen=True):
    """The reply of a member of `quotes`."""

    symbol: str
    price: float
    member: str
    """The node id of the member."""
    process: int
    """Its process id."""


def price_of(symbol: str, unix_s: float) -> Price:
    """Return the price of a symbol at a time, in seconds since 1970: every process computes the same one."""
    middle = SYMBOLS[symbol]
    phase = len(symbol) + middle
    swing = math.sin(unix_s / 7 + phase) + 0.4 * math.sin(unix_s * 1.3 + 2 * phase) + 0.2 * math.sin(unix_s * 5 + phase)
    return Price(round(middle * (1 + 0.02 * swing), 2), round(2 * swing, 2))


def load_of(seconds: float) -> float:
    """Return the load of the market after some seconds, between 0 and 1."""
    return (1 + math.sin(2 * math.pi * seconds / LOAD_PERIOD_S)) / 2


class Market:
    """Publishes prices, and asks the cluster `quotes`, until it is cancelled.

    Args:
        node: The node of the market.

    Attributes:
        answered: The number of answered requests.
        failed: The number of failed requests.
    """

    def __init__(self, node: iris_py.Node) -> None:
        self.answered = 0
        self.failed = 0
        self._node = node
        self._under_way = asyncio.Semaphore(UNDER_WAY_MAX)

    async def run(self) -> None:
        """Publish and ask, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish())
            tasks.create_task(self._ask_many(tasks))

    async def _publish(self) -> NoReturn:
        while True:
            for symbol in SYMBOLS:
                await self._node.publish(f"{PRICES}.{symbol}", msgspec.json.encode(price_of(symbol, time.time())))
            await asyncio.sleep(PRICE_S)

    async def _ask_many(self, tasks: asyncio.TaskGroup) -> NoReturn:
        began = time.monotonic()
        least, most = REQUESTS_PER_S
        while True:
            for symbol in SYMBOLS:
                await self._under_way.acquire()
                tasks.create_task(self._ask(symbol))
                await asyncio.sleep(1 / (least + (most - least) * load_of(time.monotonic() - began)))

    async def _ask(self, symbol: str) -> None:
        try:
            await self._node.request(CLUSTER, symbol.encode(), timeout=TIMEOUT_S, idempotent=True)
        except IrisError:
            self.failed += 1
        else:
            self.answered += 1
        finally:
            self._under_way.release()
