"""Secrets do not show: not in the representation of any object, nor in the traceback of any error."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.config import load_config
from iris_security import Keyring, Secret
from tests.leaks import find_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.conftest import Loops

#: Both are known to tests/leaks.py also by their bytes.
SECRET, OWN = (Secret(bytes(range(start, start + 32))) for start in (0, 32))
OTHER = Secret(bytes(32))
PACKAGES = ("iris_py", "iris_overlay", "iris_security")


async def echo(request: iris.Request) -> bytes:
    return request.payload


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the secret of the network."""
    path = tmp_path / "network.secret"
    path.write_text(SECRET.text)
    path.chmod(0o600)
    return path


def shown_by_objects() -> Iterator[str]:
    """Yield the representation of each object of Iris, and of those that hold arguments for a call.

    Those of pytest are left out: it keeps other tests in them, whose names have their parameters, and some are secrets.
    """
    for each in gc.get_objects():
        is_call = isinstance(each, functools.partial) and not str(getattr(each.func, "__module__", "")).startswith("_pytest.")
        if is_call or str(type(each).__module__).partition(".")[0] in PACKAGES:
            yield from (repr(each), str(each))


def test_no_object_of_a_node_that_works_shows_a_secret(loop: Loops, path: Path) -> None:
    settings: dict[str, Any] = {"clusters": {"payroll": OWN.text}, "discovery": False}

    async def main() -> None:
        async with (
            iris.connect(secret_file=path, **settings) as first,
            iris.connect(secret=SECRET.text, seeds=[first.address], **settings) as second,
            iris.connect(keyring=Keyring(SECRET, clusters={"payroll": OWN}), seeds=[first.address], discovery=False) as third,
            first.join("payroll", echo),
            second.subscribe("news") as news,
        ):
            for node in (second, third):
                assert await node.request("payroll", b"hello") == b"hello"
            await third.publish("news", b"new")
            await anext(aiter(news))
            texts = list(shown_by_objects())
            assert len(texts) > 100
            assert find_secrets(texts) == []

    loop.run(main())


def test_no_setting_shows_a_secret(path: Path) -> None:
    config = load_config(secret=[SECRET.text, OWN], clusters={"payroll": OWN.text}, environ={"HOME": str(path.parent)})
    again = load_config(config=config, environ={})
    ring = load_config(keyring=Keyring(SECRET, accepted=[OWN]), environ={"HOME": str(path.parent)})
    assert find_secrets(shown for each in (config, again, ring) for shown in (repr(each), str(each), f"{each}")) == []


def test_no_traceback_shows_a_secret(loop: Loops, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of errors as a program meets them, and with all that led to them."""
    caplog.set_level(logging.DEBUG)
    caught: list[BaseException] = []

    async def fail(**arguments: Any) -> None:
        with pytest.raises((iris.IrisError, LookupError)) as error:
            async with iris.connect(**{"discovery": False, **arguments}) as node:
                await node.request(arguments.get("zone", "nobody"), b"x", timeout=30.0)
        caught.append(error.value)

    async def break_down(_request: iris.Request) -> bytes:
        raise LookupError("no entry")

    async def main() -> None:
        async with iris.connect(secret_file=path, discovery=False) as node, node.join("broken", break_down):
            seeds = [node.address]
            await fail(secret=SECRET.text, seeds=seeds)
            await fail(secret=SECRET.text, seeds=seeds, zone="broken")
            await fail(secret=OTHER.text, seeds=seeds)
            await fail(secret=SECRET.text, listen=node.address)
            await fail(secret=SECRET.text, listen="nonsense")
            await fail(secret=SECRET.text, strict=True)
            await fail(secret=[SECRET.text, OWN.text, 7])
            await fail(secret=SECRET.text, secret_file=path)
            await fail(secret=SECRET.text, clusters={"payroll": OWN.text + "x"})
            await fail(secret=SECRET.text, clusters=lambda name: OWN.text + name)
            await fail(secret_file=SECRET.text)
            await fail(secret=SECRET.text[:-1] + "A")
            spoil(path)
            with pytest.raises(iris.ConfigurationError) as error:
                node.reload_keys()
            caught.append(error.value)
        await asyncio.sleep(0)

    loop.run(main())
    texts = ["".join(traceback.format_exception(each)) for each in caught] + [repr(each) for each in with_causes(caught)]
    texts += [repr(vars(each)) for each in with_causes(caught)]
    assert len(texts) > 2 * len(caught) > 24
    assert find_secrets([*texts, caplog.text]) == []
    assert [text for text in [*texts, caplog.text] if OWN.text[:20] in text or SECRET.text[:20] in text] == []


def spoil(path: Path) -> None:
    """Put a secret into the file that is none any more."""
    path.write_text(f"{OWN.text}\n{SECRET.text}x\n")


def with_causes(errors: list[BaseException]) -> list[BaseException]:
    """Return errors with those that led to them, also where a traceback leaves these out."""
    found: dict[int, BaseException] = {}
    waiting = list(errors)
    while waiting:
        error = waiting.pop()
        if id(error) not in found:
            found[id(error)] = error
            waiting += [each for each in (error.__cause__, error.__context__) if each is not None]
    return list(found.values())
