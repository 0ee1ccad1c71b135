"""The settings as arguments of connect(): mypy and pyright read this file, and nothing runs it (see typed_programs.py)."""

from __future__ import annotations

from typing import assert_type

import iris_py as iris
import iris_py.sync

secret = iris.Secret(bytes(32))
assert_type(iris_py.sync.connect(), iris_py.sync.Node)
iris.connect(network="prod", secret=[secret, "text"], listen="0.0.0.0:0", seeds=["a:1"], zone=None, observe="counts")
iris.connect(keyring=iris.Keyring(secret), clusters={"db": secret}, tracing=True, max_message_bytes=2048, config="iris.toml")
iris_py.sync.connect(clusters=lambda name: None, discovery=False, busy_poll=False, strict=True, leave_on_sigterm=False)

iris.connect("prod")  # type: ignore[call-arg]
iris.connect(zoen="eu")  # type: ignore[call-arg]
iris.connect(zone=3)  # type: ignore[arg-type]
iris.connect(observe="some")  # type: ignore[arg-type]
iris.connect(seeds=[4711])  # type: ignore[list-item]
iris_py.sync.connect(discovery="no")  # type: ignore[arg-type]
iris_py.sync.connect(leave_on_sigtrem=True)  # type: ignore[call-arg]
