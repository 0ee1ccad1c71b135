"""The job: publishes notes for its users, and answers with their last ones. Start it with seconds: `python job.py 2`."""

import asyncio
import itertools
import json
import sys
from collections import defaultdict, deque

import iris_py as iris

USERS = ("ann", "bob")
KEPT = 20


class Notes(iris.Handler):
    """The last notes of each user. A real job has them in a database."""

    def __init__(self) -> None:
        self.kept: dict[str, deque[dict[str, object]]] = defaultdict(lambda: deque(maxlen=KEPT))

    async def on_request(self, request: iris.Request) -> bytes:
        return json.dumps(list(self.kept.get(request.payload.decode(), ()))).encode()


async def publish(node: iris.Node, notes: Notes, pause_s: float) -> None:
    for number in itertools.count(1):
        for user in USERS:
            note = {"number": number, "text": f"order {number} of {user} is on its way"}
            notes.kept[user].append(note)
            await node.publish(f"notes.{user}.new", json.dumps(note).encode())
        await asyncio.sleep(pause_s)


async def main() -> None:
    notes = Notes()
    async with iris.connect(name="job") as node, node.join("notes", notes):
        job = asyncio.create_task(publish(node, notes, float(sys.argv[1])))
        await iris.until_stopped()
        job.cancel()


if __name__ == "__main__":
    iris.run(main())
