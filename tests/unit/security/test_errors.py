"""Tests of security/iris_security/errors.py."""

import pickle

import pytest

import iris_security
from iris_security import AuthenticationError, KeyExhaustedError, ReplayError, SecretFormatError, SecurityError


@pytest.mark.parametrize("error", [SecretFormatError, KeyExhaustedError, AuthenticationError, ReplayError])
def test_all_errors_have_one_base(error: type[SecurityError]) -> None:
    assert issubclass(error, SecurityError)


def test_a_malformed_secret_is_a_value_error() -> None:
    assert issubclass(SecretFormatError, ValueError)


def test_a_replay_is_handled_as_a_failed_authentication() -> None:
    assert issubclass(ReplayError, AuthenticationError)


def test_a_failed_authentication_says_the_same_whatever_the_cause() -> None:
    assert str(AuthenticationError()) == str(AuthenticationError("the tag of message 2 is wrong"))


def test_errors_survive_pickling() -> None:
    assert str(pickle.loads(pickle.dumps(ReplayError()))) == str(ReplayError())


def test_the_package_exports_what_it_lists() -> None:
    assert len(set(iris_security.__all__)) == len(iris_security.__all__)
    for name in iris_security.__all__:
        assert hasattr(iris_security, name)
