"""A secret that stands in a setting that takes none is refused, and never repeated."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.config import Config, check_file, load_config
from iris_py.errors import ConfigurationError
from iris_py.settings.table import SETTINGS, Setting
from tests.unit.security.test_text_form import SECRETS

if TYPE_CHECKING:
    from pathlib import Path

#: These take secrets as text. What else they refuse has tests of its own.
TAKING = ("secret", "keyring", "secret_command")
OTHERS = [setting for setting in SETTINGS if setting.name not in TAKING]


def refused(secret: str, **given: Any) -> str:
    """Load settings that are wrong; returns the error."""
    with pytest.raises(ConfigurationError) as raised:
        load_config(**{"environ": {}, **given})
    told: list[str] = [str(raised.value), repr(raised.value), *getattr(raised.value, "__notes__", ())]
    assert not any(secret.partition(".")[2][:20] in text for text in told), told
    return told[0]


def in_file(path: Path, setting: Setting, secret: str) -> Path:
    value = f'{{ "{secret}" = "x" }}' if setting.name == "clusters" else f'"{secret}"'
    path.write_text(f"{setting.name} = {value}\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("setting", OTHERS, ids=lambda setting: setting.name)
def test_each_setting_of_each_source_refuses_a_secret_without_repeating_it(
    tmp_path: Path, setting: Setting, secret: str
) -> None:
    value: Any = {secret: "x"} if setting.name == "clusters" else [secret] if setting.name in ("seeds", "advertise") else secret
    assert setting.name in refused(secret, **{setting.name: value})
    if setting.is_variable:
        assert f"IRIS_{setting.name.upper()}" in refused(secret, environ={f"IRIS_{setting.name.upper()}": secret})
    if setting.is_key:
        path = in_file(tmp_path / "iris.toml", setting, secret)
        refused(secret, config=path)
        assert not any(secret in text for _line, text in check_file(path))
        assert check_file(path)


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_each_text_of_a_config_refuses_a_secret(secret: str) -> None:
    config = Config(state_directory=None, config_directory=None)
    for field in fields(Config):
        if isinstance(getattr(config, field.name), str):
            values: dict[str, Any] = {field.name: secret}
            assert field.name in refused(secret, config=replace(config, **values))


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_the_path_of_the_file_is_no_place_for_a_secret(secret: str) -> None:
    assert "config" in refused(secret, config=secret)
    assert "IRIS_CONFIG" in refused(secret, environ={"IRIS_CONFIG": secret})
