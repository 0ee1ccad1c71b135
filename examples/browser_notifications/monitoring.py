"""Monitoring: a plain subscriber that counts the notes of each user, and the notes that it missed."""

from collections import Counter

import iris_py as iris


async def main() -> None:
    counts: Counter[str] = Counter()

    def count(message: iris.Message) -> None:
        counts[message.topic.split(".")[1]] += 1
        counts["missed"] += message.gap
        print(", ".join(f"{name} {number}" for name, number in sorted(counts.items())), flush=True)

    async with iris.connect(name="monitoring") as node, node.subscribe("notes.*.new", count):
        await iris.until_stopped()


if __name__ == "__main__":
    iris.run(main())
