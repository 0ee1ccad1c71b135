"""Asks the services of all languages, which share the name "words": ask.py [LANGUAGE...]

It goes on until each language, Python by default, has answered, and a message of each was heard.
"""

import asyncio
import sys

import iris_py as iris


def language_of(text: bytes) -> str:
    return text.decode().rpartition(" ")[2]


async def listen(subscription: iris.Subscription, silent: set[str]) -> None:
    async for message in subscription:
        silent.discard(language_of(message.payload))


async def main() -> None:
    languages = sys.argv[1:] or ["Python"]
    missing, silent = set(languages), set(languages)
    async with iris.connect() as node, node.subscribe("words.counted") as subscription:
        listening = asyncio.create_task(listen(subscription, silent))
        while missing or silent:
            reply = await node.request("words", b"all of us count", timeout=10.0, wait_for_members=30.0)
            if language_of(reply) in missing:
                missing.remove(language_of(reply))
                print(reply.decode(), flush=True)
        listening.cancel()
        try:
            await node.request("words", b" ", timeout=10.0)
        except iris.RemoteError as error:
            print(f"without a word: {error}", flush=True)


if __name__ == "__main__":
    iris.run(main())
