"""End-to-end sealed payloads: a desk calls a vault through a relay that forwards requests which it cannot decrypt.

A gateway to another cloud is such a relay. Caller and vault share a secret that the network, and so the relay, does not have.
"""

import os

import iris_py as iris

SECRET = iris.Secret.generate(os.urandom)  # usually a file at both ends, made by `iris keys new`
RECORDS = {b"patient 7": b"all is well"}


async def look_up(request: iris.Request) -> bytes:
    return RECORDS[request.payload]


class Relay(iris.Handler):
    """Hands requests on, as they came, and keeps what it saw."""

    def __init__(self, node: iris.Node) -> None:
        self.node, self.seen = node, b""

    async def on_request(self, request: iris.Request) -> bytes:
        reply = await self.node.request("vault", request.payload)
        self.seen += request.payload + reply
        return reply


async def main() -> None:
    async with iris.connect() as desk, iris.connect() as between, iris.connect() as vault:  # usually three machines
        relay = Relay(between)
        await vault.join("vault", iris.Sealed(look_up, SECRET))
        await between.join("relay", relay)
        seal = iris.Seal(SECRET, name="vault")  # where it is asked as "vault", or "vault@eu", seal=SECRET suffices
        print("the desk reads:", (await desk.request("relay", b"patient 7", seal=seal)).decode())
        print("the relay saw it:", any(word in relay.seen for word in (b"patient", b"well")))
        try:
            await desk.request("vault", b"patient 7")
        except iris.RemoteError as error:
            print("without the seal:", error.type)


if __name__ == "__main__":
    iris.run(main())
