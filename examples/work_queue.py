"""A work queue with retries, without a queue server: workers join a cluster, and each job is a request for any one of them.

A job that a worker fails is tried again after a pause. A worker that dies or leaves costs nothing: its jobs go to the others.
The key makes sure that a worker which has done a job does not do it again when only its reply was lost.
"""

import asyncio
import random

import iris_py as iris

JOBS = 20
ATTEMPTS = 10
PAUSE_S = 0.02


class Worker(iris.Handler):
    """Does jobs, and stumbles over every third one."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.done: list[str] = []

    async def on_request(self, request: iris.Request) -> bytes:
        await asyncio.sleep(0.01)  # the work
        if self._chance.random() < 1 / 3:
            raise OSError("the disk is slow today")
        self.done.append(request.payload.decode())
        return b"done"


async def submit(node: iris.Node, job: str) -> int:
    """Have a job done; returns how many attempts it took."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            await node.request("workers", job.encode(), timeout=10.0, idempotent=True, key=job)
        except iris.RemoteError:  # the worker says that it failed: the job was not done
            await asyncio.sleep(PAUSE_S * attempt)
        else:
            return attempt
    raise RuntimeError(f"{job} failed {ATTEMPTS} times")


async def main() -> None:
    async with iris.connect() as node, iris.connect() as second, iris.connect() as third:  # usually three machines
        workers = [Worker(random.Random(number)) for number in range(2)]
        staying = await second.join("workers", workers[0], concurrency=2)
        leaving = await third.join("workers", workers[1], concurrency=2)
        jobs = [asyncio.create_task(submit(node, f"job {number}")) for number in range(JOBS)]
        await asyncio.sleep(0.05)
        await leaving.leave()  # in the middle of it: what it runs is finished, what waits there goes to the other
        attempts = await asyncio.gather(*jobs)
        await staying.leave()
        done = workers[0].done + workers[1].done
        print(f"{len(set(done))} jobs done, {len(done) - len(set(done))} of them twice, some retried: {max(attempts) > 1}")


if __name__ == "__main__":
    iris.run(main())
