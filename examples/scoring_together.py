"""A model behind a cluster: callers ask one by one, and the member answers all that came together with one call.

While a call of the model runs, what comes waits for a free place; then it is the next call. So one caller gets an answer at
once, and a thousand share the cost of a few calls. One that cannot be scored fails alone.
"""

import asyncio
from collections.abc import Sequence

import iris_py as iris

CALLERS = 200
#: So many requests are in the model at most.
PLACES = 64


class Scorer(iris.Handler):
    """A model that takes as long for one as for many."""

    def __init__(self) -> None:
        self.calls = 0

    async def on_requests(self, requests: Sequence[iris.Request]) -> Sequence[bytes | Exception]:
        self.calls += 1
        await asyncio.sleep(0.02)  # the model
        return [self.score(request.payload.decode()) for request in requests]

    def score(self, text: str) -> bytes | Exception:
        return b"%d" % (int(text) ** 2) if text.isdecimal() else ValueError(f"{text!r} is no number")


async def main() -> None:
    async with iris.connect() as node, iris.connect() as other:  # usually two machines
        scorer = Scorer()
        async with other.join("scorers", scorer, concurrency=PLACES):
            asked = [node.request("scorers", b"%d" % number) for number in range(CALLERS)]
            *scores, seven = await asyncio.gather(*asked, node.request("scorers", b"seven"), return_exceptions=True)
            print(f"{scores[12]!r} for 12, and {seven!r}")
            print(f"{CALLERS + 1} requests in fewer than {CALLERS // 4} calls: {scorer.calls < CALLERS // 4}")


if __name__ == "__main__":
    iris.run(main())
