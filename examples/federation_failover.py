"""A gateway is killed while a program asks another cloud, and no request fails: there is a second one.

The gateways of the program's cloud are processes, `iris gateway`, as they would be on machines of their own.
"""

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process, create_subprocess_exec
from pathlib import Path

import iris_py as iris
from iris_py.gateway import CloudKey, open_gateway

EU = """[gateway]\nname = "eu"\nidentity_file = "eu.identity"\nlisten = "127.0.0.1:0"
[cloud.us]\nkeys = ["{key}"]\n[[export]]\nto = ["us"]\ncluster = "scorers"
"""
US = """[gateway]\nname = "us"\nidentity_file = "us.identity"
[cloud.eu]\nkeys = ["{key}"]\ndial = ["{address}"]
[[import]]\nfrom = ["eu"]\ncluster = "scorers"
"""


async def start_gateway(node: iris.Node, file: Path, secret: iris.Secret) -> Process:
    environment = {**os.environ, "IRIS_SECRET": secret.text, "IRIS_SEEDS": node.address, "IRIS_DISCOVERY": "false"}
    command = (sys.executable, "-m", "iris_py.cli", "gateway", str(file), "--json")
    process = await create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=DEVNULL)
    assert process.stdout is not None
    await process.stdout.readline()  # it serves
    return process


async def main(folder: Path) -> None:
    keys = {name: CloudKey.generate(os.urandom) for name in ("us", "eu")}
    for name, key in keys.items():
        (folder / f"{name}.identity").touch(0o600)
        (folder / f"{name}.identity").write_text(key.text)
    (folder / "eu.toml").write_text(EU.format(key=keys["us"].public_text))
    secret = iris.Secret.generate(os.urandom)
    async with (
        iris.connect(secret=secret) as us,
        iris.connect(secret=os.urandom(32)) as eu,
        eu.join("scorers", lambda request: request.payload[::-1]),
        open_gateway(eu, folder / "eu.toml") as there,
    ):
        (folder / "us.toml").write_text(US.format(key=keys["eu"].public_text, address=there.address))
        first, second = [await start_gateway(us, folder / "us.toml", secret) for _ in range(2)]
        for number in range(200):
            assert await us.request("scorers@eu", b"%03d" % number, idempotent=True) == (b"%03d" % number)[::-1]
            if number == 100:
                first.kill()
        second.terminate()  # it drains
        print(f"200 answered; exit codes {await first.wait()} and {await second.wait()}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
