"""Topics of another cloud over real sockets, for programs without `await`."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING

import iris_py as iris
import iris_py.sync
from iris_py.federation.settings import parse_settings
from iris_py.gateway.startup import start_gateway
from iris_security import CloudKey, Secret
from tests.integration.conftest import PATIENCE_S

if TYPE_CHECKING:
    from iris_py.gateway.gateway import Gateway

US, EU = CloudKey.generate(os.urandom), CloudKey.generate(os.urandom)
SECRETS = {name: Secret.generate(os.urandom).text for name in ("us", "eu")}


async def gateway(node: iris.Node, key: CloudKey, text: str) -> Gateway:
    settings = parse_settings(f'[gateway]\nname = "x"\nidentity_file = "x"\n{text}', "x.toml")
    return await start_gateway(node, settings, key)


def test_a_thread_subscribes_publishes_and_broadcasts_to_another_cloud() -> None:
    addresses: dict[str, str] = {}
    ready, done = threading.Event(), threading.Event()
    published: list[bytes] = []

    async def clouds() -> None:
        own = [await iris.connect(secret=SECRETS[name], listen="127.0.0.1:0", discovery=False) for name in ("us", "eu")]
        far = await gateway(
            own[1],
            EU,
            f'listen = "127.0.0.1:0"\n[cloud.us]\nkeys = ["{US.public_text}"]\n'
            '[[export]]\nto = ["us"]\ntopic = "clicks.>"\nallow = ["subscribe", "publish"]\n'
            '[[export]]\nto = ["us"]\ncluster = "workers"\nallow = ["broadcast"]\n',
        )
        near = await gateway(
            own[0],
            US,
            f'[cloud.eu]\nkeys = ["{EU.public_text}"]\ndial = ["{far.address}"]\n'
            '[[import]]\nfrom = ["eu"]\ntopic = "clicks.>"\n[[import]]\nfrom = ["eu"]\ncluster = "workers"\n',
        )
        while not any(cloud.is_up for cloud in await own[0].clouds()):
            pass
        addresses["us"] = own[0].address
        async with own[1].subscribe("clicks.>", lambda message: published.append(message.payload)):
            ready.set()
            while not done.is_set():
                await own[1].publish("clicks.a", b"click")
                await asyncio.sleep(0.02)
        await asyncio.gather(near.close(timeout=1), far.close(timeout=1))
        await asyncio.gather(*(node.close() for node in own))

    thread = threading.Thread(target=asyncio.run, args=(clouds(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        seeds = [addresses["us"]]
        with iris_py.sync.connect(secret=SECRETS["us"], seeds=seeds, listen="127.0.0.1:0", discovery=False) as node:
            with node.subscribe("clicks.>@eu") as clicks:
                message = next(clicks)
                assert (message.payload, message.cloud, message.topic) == (b"click", "eu", "clicks.a")
                assert clicks.is_connected
            assert node.publish("clicks.b@eu", b"from us") == 1
            assert node.publish_many("clicks.b@eu", [b"1", b"2"]) == 1
            assert node.broadcast("workers@eu", b"") == 0
            deadline = time.monotonic() + PATIENCE_S
            while b"2" not in published and time.monotonic() < deadline:  # else the subscriber might leave before it has come
                time.sleep(0.005)
    finally:
        done.set()
        thread.join(PATIENCE_S)
    assert [payload for payload in published if payload != b"click"] == [b"from us", b"1", b"2"]
