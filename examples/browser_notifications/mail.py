"""Mail: a plain subscriber. Several processes share the notes, because they are a group: each note is mailed once."""

import json

import iris_py as iris


def send(message: iris.Message) -> None:
    user = message.topic.split(".")[1]
    print(f"mail to {user}: {json.loads(message.payload)['text']}", flush=True)


async def main() -> None:
    async with iris.connect(name="mail") as node, node.subscribe("notes.*.new", send, group="mail"):
        await iris.until_stopped()


if __name__ == "__main__":
    iris.run(main())
