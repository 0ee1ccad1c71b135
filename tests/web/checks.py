"""Hooks of Schemathesis (SCHEMATHESIS_HOOKS): odd names, and what every answer of a door has to be."""

from __future__ import annotations

import re
import zlib
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import msgspec
import schemathesis

from iris_py.doors.problems import PROBLEMS, Problem

NDJSON = "application/x-ndjson"
#: Addresses and traces of the inside.
INSIDE = re.compile(rb"127\.0\.0\.1:(?!7480)\d|Traceback|\.py\b")
#: Names that a schema allows and a door refuses, or that look like something else. One of three requests has one.
ODD_NAMES = (
    *("a..b", ".a", "a.", "a.*", ">", "a.>.b", "iris.gateway", "iris.", "a@", "@", "@eu", "a@b@c", "a@eu", "a/b"),
    *("events", "last", "\0", "a\nb", "%2e", "%FF", "{name}", "<script>", "x" * 255, "x" * 256, "x." * 200 + "x", "\U0010ffff"),
)
#: No request waits for longer (seconds): nobody serves the clusters with random names.
TIMEOUT_S = 0.2


def before_call(_context: Any, case: Any, _options: Any) -> None:
    """Give some requests odd names, and let none wait for long."""
    positive = case.meta is None or case.meta.generation.mode.is_positive
    name = (case.path_parameters or {}).get("name")
    if positive and isinstance(name, str):
        chance = zlib.crc32(f"{name} {case.operation.label}".encode(errors="replace"))
        if chance % 3 == 0:
            case.path_parameters["name"] = quote(ODD_NAMES[chance // 3 % len(ODD_NAMES)], safe="")
    if positive and case.operation.path.startswith("/v1/clusters/"):
        case.headers["Iris-Timeout"] = str(TIMEOUT_S)


def problem_of_the_table(_context: Any, response: Any, _case: Any) -> None:
    """Each error is a problem of the table, and never an error of the door itself."""
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == ["application/problem+json"], "an error is no problem"
    problem = msgspec.json.decode(response.content, type=Problem)
    name = problem.type.removeprefix("/v1/problems/")
    kind = PROBLEMS[name]
    assert name != "failed", "the door failed"
    assert (problem.status, problem.executed, problem.title) == (kind.status, kind.executed, kind.title)
    assert response.status_code == kind.status
    if kind.status == 401:
        assert response.headers["www-authenticate"] == ["Bearer"]


def nothing_of_the_inside(_context: Any, response: Any, _case: Any) -> None:
    """No answer has an address of a node, or a trace."""
    if response.headers.get("content-type") != ["application/octet-stream"]:  # the reply of a member, as it is
        assert INSIDE.search(response.content) is None, "an answer has an address of the inside"


def lines_of_the_description(_context: Any, response: Any, case: Any) -> None:
    """Each line of an answer in lines is as described."""
    if response.status_code != 200 or response.headers["content-type"] != [NDJSON]:
        return
    described = case.operation.schema.raw_schema
    operation = described["paths"][case.operation.path][case.operation.method.lower()]
    schema = operation["responses"]["200"]["content"][NDJSON]["schema"]
    validator = jsonschema_rs.validator_for({**schema, "components": described["components"]})
    content = response.content
    assert content.endswith(b"\n"), "an answer in lines ends within a line"
    for line in content.splitlines():
        assert validator.is_valid(msgspec.json.decode(line)), f"a line is not as described: {line!r}"


schemathesis.hook(before_call)
for check in (problem_of_the_table, nothing_of_the_inside, lines_of_the_description):
    schemathesis.check(check)
