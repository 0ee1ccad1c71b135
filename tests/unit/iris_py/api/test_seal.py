"""Seals and sealed handlers as a program gives them: what is refused, and what shows nothing."""

from __future__ import annotations

import asyncio
import threading
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
import iris_py.sync
from iris_py.api.hooks import HandlerHook, hooks_of
from iris_py.api.seal import SealedCall, SealedFailure, as_seal
from iris_py.patterns.messages import Request
from iris_security.keyring import GENERATIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECRET = iris.Secret(bytes(range(32)))
SALTS = iter(range(1, 1 << 20))


def entropy(size: int) -> bytes:
    return next(SALTS).to_bytes(size, "big")


class _Execution:
    identity = b""


def request_of(call: SealedCall) -> Request:
    return Request(call.payload, _Execution(), lambda: 0.0)  # type: ignore[arg-type] # a request that came from nowhere


def call(payload: bytes = b"plaintext", cluster: str = "vault", key: Any = None) -> SealedCall:
    return SealedCall(as_seal(SECRET), cluster, payload, key, entropy)


def hook_for(handler: Any, cluster: str = "vault", **options: Any) -> HandlerHook:
    return iris.Sealed(handler, SECRET, **options)._seal_hooks(hooks_of(handler, None), cluster, entropy).on_request


def opened_for(handler: Any, cluster: str = "vault", **options: Any) -> Any:
    return hook_for(handler, cluster, **options).function


def echo(request: iris.Request) -> bytes:
    return request.payload


@pytest.mark.parametrize("make", [iris.Seal, lambda secret, **name: iris.Sealed(echo, secret, **name)], ids=["Seal", "Sealed"])
class TestWhatIsGiven:
    @pytest.mark.parametrize("secret", ["", "iris1.short", b"short", [], None, 5, [SECRET, "iris1.short"]])
    def test_what_is_no_secret_is_refused_and_not_shown(self, make: Callable[..., Any], secret: Any) -> None:
        with pytest.raises(iris.ConfigurationError, match="keys new") as caught:
            make(secret)
        assert "short" not in str(caught.value)

    def test_too_many_generations_are_refused(self, make: Callable[..., Any]) -> None:
        secrets = [iris.Secret(bytes((number,)) * 32) for number in range(GENERATIONS_MAX + 1)]
        make(secrets[1:])
        with pytest.raises(iris.ConfigurationError, match=f"{GENERATIONS_MAX} are allowed"):
            make(secrets)

    @pytest.mark.parametrize("name", ["", "a\0", "n" * 256, 5])
    def test_a_name_that_cannot_be_one_is_refused(self, make: Callable[..., Any], name: Any) -> None:
        with pytest.raises(iris.ConfigurationError, match="name"):
            make(SECRET, name=name)

    def test_no_text_shows_the_secret(self, make: Callable[..., Any]) -> None:
        for secret in (SECRET, SECRET.text, SECRET.value):
            shown = repr(make(secret))
            assert SECRET.text not in shown
            assert repr(SECRET.value)[2:-1] not in shown


class TestNames:
    @pytest.mark.parametrize(
        ("cluster", "name", "served"),
        [("vault", None, "vault"), ("vault@eu", None, "vault"), ("a@b@eu", None, "a@b"), ("scorers@eu", "vault", "vault")],
    )
    def test_the_cloud_is_no_part_of_it(self, cluster: str, name: str | None, served: str) -> None:
        """The gateway there asks for the cluster by the name that it has there."""
        sent = SealedCall(iris.Seal(SECRET, name=name), cluster, b"plaintext", None, entropy)
        assert sent.open_reply(opened_for(echo, served)(request_of(sent))) == b"plaintext"

    @pytest.mark.parametrize("cluster", ["", 5, "n" * 256])
    def test_a_cluster_that_has_no_name_is_refused(self, cluster: Any) -> None:
        with pytest.raises(iris.ConfigurationError):
            call(cluster=cluster)

    def test_a_key_of_another_type_is_left_to_the_request(self) -> None:
        assert call(key=5).payload


class TestHandlers:
    @pytest.mark.parametrize("base", [iris.Handler, iris_py.sync.Handler])
    @pytest.mark.parametrize(("hook", "what"), [("on_broadcast", "broadcasts"), ("on_tunnel", "tunnels")])
    def test_what_is_not_sealed_is_refused(self, base: type, hook: str, what: str) -> None:
        iris.Sealed(base(), SECRET)
        handler = type("Service", (base,), {hook: lambda _self, _given: None})()
        with pytest.raises(iris.ConfigurationError, match=rf"Service\.{hook}\(\) cannot be sealed: {what}"):
            iris.Sealed(handler, SECRET)

    @pytest.mark.parametrize("handler", [b"bytes", None, iris.Handler, iris.Sealed(echo, SECRET)])
    def test_what_is_no_handler_is_refused(self, handler: Any) -> None:
        with pytest.raises(iris.ConfigurationError):
            iris.Sealed(handler, SECRET)

    def test_a_handler_of_the_other_api_is_refused(self) -> None:
        with pytest.raises(iris.ConfigurationError, match=r"an iris_py\.Handler or a function"):
            opened_for(iris_py.sync.Handler())

    def test_kinds_of_functions_stay_what_they_are(self) -> None:
        """Plain ones are run in threads, or in the event loop if they are to be."""

        async def echo_later(request: iris.Request) -> bytes:
            await asyncio.sleep(0)
            return request.payload

        assert not hook_for(echo).is_async
        assert hook_for(echo_later).is_async

    def test_a_plain_function_that_returns_an_awaitable(self) -> None:
        async def echo_later(request: iris.Request) -> bytearray:
            if request.payload == b"fail":
                raise ValueError("plaintext")
            return bytearray(request.payload)

        async def ask(payload: bytes) -> bytes:
            sent = call(payload)
            reply: Awaitable[bytes] = handler(request_of(sent))
            return await sent.ask(reply)

        handler = opened_for(lambda request: echo_later(request))
        assert asyncio.run(ask(b"plaintext")) == b"plaintext"
        with pytest.raises(SealedFailure):
            asyncio.run(ask(b"fail"))

    @pytest.mark.parametrize("reply", [None, "text", 5])
    def test_what_is_no_reply_is_left_to_be_refused(self, reply: Any) -> None:
        assert opened_for(lambda _request: reply)(request_of(call())) is reply

    def test_each_handler_takes_a_request_once_also_from_many_threads(self) -> None:
        handler, sent, taken = opened_for(echo), call(), list[bytes]()
        begun = threading.Barrier(8)

        def take() -> None:
            begun.wait()
            try:
                taken.append(handler(request_of(sent)))
            except iris.SealError:
                pass

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        opened_for(echo)(request_of(sent))  # another one knows nothing of it


class TestFailures:
    @pytest.mark.parametrize("kind", ["plain", "async", "handler"])
    def test_a_failure_has_nothing_of_what_was_raised(self, kind: str) -> None:
        def fail(request: iris.Request) -> bytes:
            try:
                raise KeyError("plaintext of the cause")
            except KeyError as exc:
                raise ValueError(request.payload.decode()) from exc

        async def fail_later(request: iris.Request) -> bytes:
            return fail(request)

        class Failing(iris.Handler):
            async def on_request(self, request: iris.Request) -> bytes:
                return fail(request)

        async def ask(request: Request) -> None:
            if kind == "plain":
                opened_for(fail)(request)
            elif kind == "async":
                await opened_for(fail_later)(request)
            else:
                await opened_for(Failing())(request)

        sent = call()
        with pytest.raises(SealedFailure) as caught:
            asyncio.run(ask(request_of(sent)))
        shown = "".join(traceback.format_exception(caught.value))
        assert "plaintext" not in shown.replace('KeyError("plaintext of the cause")', "")  # the source, not what it made
        assert caught.value.__context__ is caught.value.__cause__ is None
        assert "in fail" in shown, "the place is"
        assert sent.open_failure("SealedFailure", str(caught.value)) == ("ValueError", "plaintext")
        with pytest.raises(iris.SealError):
            call().open_failure("SealedFailure", str(caught.value))

    @pytest.mark.parametrize("text", ["", "no base64!", "AAAA", "\u20ac" * 100])
    def test_a_failure_that_does_not_open_is_an_error_of_its_own(self, text: str) -> None:
        with pytest.raises(iris.SealError):
            call().open_failure("SealedFailure", text)

    def test_other_failures_are_as_they_came(self) -> None:
        assert call().open_failure("MessageTooLarge", "a message of 5 bytes") is None

    @pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit()])
    def test_what_ends_a_task_is_not_sealed(self, error: BaseException) -> None:
        def end(_request: iris.Request) -> bytes:
            raise error

        with pytest.raises(type(error)):
            opened_for(end)(request_of(call()))

    @pytest.mark.parametrize("error", [SystemExit("plaintext"), StopIteration("plaintext"), TimeoutError("plaintext")])
    def test_everything_else_that_a_handler_raises_is(self, error: BaseException) -> None:
        def fail(_request: iris.Request) -> bytes:
            raise error

        sent = call()
        with pytest.raises(SealedFailure) as caught:
            opened_for(fail)(request_of(sent))
        assert sent.open_failure("SealedFailure", str(caught.value)) == (type(error).__name__, "plaintext")
