"""A saga: several services do their part of one order, and when one cannot, the others take theirs back.

Each step and each compensation is an idempotent request with a key of its own: it may be sent as often as it takes until its
outcome is known, also by another process that goes on with the saga, and the service still does it once.
"""

import iris_py as iris


class Ledger(iris.Handler):
    """Books and cancels by order, within what it has."""

    def __init__(self, name: str, available: int) -> None:
        self.name, self.available = name, available

    async def on_request(self, request: iris.Request) -> bytes:
        action, order = request.payload.decode().split()
        if action == "book" and not self.available:
            raise LookupError(f"no {self.name} left for {order}")
        self.available += 1 if action == "cancel" else -1
        print(f"{self.name}: {action} {order}")
        return b"ok"


async def step(node: iris.Node, service: str, action: str, order: str) -> None:
    """Have one service do one thing, once; a time-out says nothing of the outcome, so it is asked again."""
    while True:
        try:
            await node.request(service, f"{action} {order}".encode(), idempotent=True, key=f"{order} {action}")
        except iris.RequestTimeout:
            continue
        return


async def run_saga(node: iris.Node, order: str, services: list[str]) -> None:
    """Book everything or nothing."""
    for number, service in enumerate(services):
        try:
            await step(node, service, "book", order)
        except iris.RemoteError as refusal:
            print(f"{order}: {refusal.text}, so it is taken back")
            for done in reversed(services[:number]):
                await step(node, done, "cancel", order)
            return
    print(f"{order}: booked")


async def main() -> None:
    ledgers = [Ledger("flight", 2), Ledger("hotel", 1), Ledger("car", 5)]
    async with iris.connect() as node, iris.connect() as other:
        for ledger in ledgers:
            await other.join(ledger.name, ledger)
        for order in ("order-1", "order-1", "order-2"):  # the first is sent again, by whoever is not sure: nothing more happens
            await run_saga(node, order, [ledger.name for ledger in ledgers])
        print("left:", ", ".join(f"{ledger.available} {ledger.name}" for ledger in ledgers))


if __name__ == "__main__":
    iris.run(main())
