"""A service whose requests and replies are types: both sides share a codec, and a type checker knows what comes back.

Run it anywhere: it serves a cluster, asks it, and publishes what was sold.
"""

import msgspec

import iris_py as iris


class Order(msgspec.Struct, tag="order"):
    """Asks for some of an article."""

    article: str
    count: int = 1


class Receipt(msgspec.Struct):
    """The answer: the price of all of it."""

    article: str
    total: float


ORDERS = iris.Codec(Order, Receipt)
PRICES = {"tea": 2.5, "cake": 4.0}


class Shop(iris.Handler[Order, Receipt]):
    """Sells, and tells everybody who listens."""

    def __init__(self, node: iris.Node) -> None:
        self._node = node

    async def on_request(self, request: iris.Request[Order]) -> Receipt:
        order = request.payload
        receipt = Receipt(order.article, PRICES[order.article] * order.count)
        await self._node.publish(f"sold.{order.article}", receipt, codec=Receipt)
        return receipt


async def main() -> None:
    async with (
        iris.connect() as node,
        node.join("shop", Shop(node), codec=ORDERS),
        node.subscribe("sold.*", codec=Receipt) as sold,
    ):
        receipt = await node.request("shop", Order("tea", 2), codec=ORDERS)
        print(f"{receipt.article}: {receipt.total:.2f}")
        print("sold:", (await anext(sold)).payload)
        try:
            await node.request("shop", {"type": "order", "article": "cake", "count": "many"}, codec="json")
        except iris.RemoteError as exc:
            print(exc.type, "at $.count:", "`$.count`" in exc.text)


if __name__ == "__main__":
    iris.run(main())
