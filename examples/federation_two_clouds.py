"""Two clouds in one program: each has its own secret and a gateway, and one uses what the other one exports.

In life they are far apart, and run by different people, who exchange nothing but public keys.
"""

import asyncio
import os
import tempfile
from pathlib import Path

import iris_py as iris
from iris_py.gateway import CloudKey, open_gateway

EU = """[gateway]
name = "eu"
identity_file = "eu.identity"
listen = "127.0.0.1:0"
[cloud.us]
keys = ["{key}"]
[[export]]
to = ["us"]
cluster = "databases-v2"
as = "databases"
"""
US = """[gateway]
name = "us"
identity_file = "us.identity"
[cloud.eu]
keys = ["{key}"]
dial = ["{address}"]
[[import]]
from = ["eu"]
cluster = "databases"
"""


async def main(folder: Path) -> None:
    keys = {name: CloudKey.generate(os.urandom) for name in ("us", "eu")}
    for name, key in keys.items():
        (folder / f"{name}.identity").touch(0o600)
        (folder / f"{name}.identity").write_text(key.text)
    async with iris.connect(secret=os.urandom(32)) as us, iris.connect(secret=os.urandom(32)) as eu:
        await eu.join("databases-v2", lambda request: b"rows for " + request.cloud.encode())
        (folder / "eu.toml").write_text(EU.format(key=keys["us"].public_text))
        async with open_gateway(eu, folder / "eu.toml") as there:
            (folder / "us.toml").write_text(US.format(key=keys["eu"].public_text, address=there.address))
            async with open_gateway(us, folder / "us.toml"):
                # Idempotent requests wait for a way; it is there a moment later.
                print(await us.request("databases@eu", b"SELECT 1", idempotent=True))
                for name in ("databases-v2@eu", "databases@asia"):
                    try:
                        await us.request(name, b"SELECT 1")
                    except iris.NoMembers as exc:  # nothing was executed
                        print(f"{name}: {type(exc).__name__}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
