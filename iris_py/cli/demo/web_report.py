"""The output of `iris demo --web`: its link, and with `--check` the findings of Chromium."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from iris_py.cli.demo.findings import DemoFinding, print_findings
from iris_py.cli.demo.keys import has_keys
from iris_py.cli.demo.progress import print_note
from iris_py.cli.demo.web_market import CLUSTER
from iris_py.cli.output import Output
from iris_py.json_lines import Line, Lines

if TYPE_CHECKING:
    from iris_py.cli.demo.web_market import Market
    from iris_py.cli.demo.web_network import WebDemo

__all__ = ["LINES", "announce", "report"]


class WebDemoReadyLine(Line, tag="web-demo-ready"):
    """The running demo."""

    url: str
    """The link to the page, for one browser within 10 minutes."""
    members: list[int]
    """The process ids of the members."""


class WebDemoLine(Line, tag="web-demo"):
    """The findings of `iris demo --web --check` in Chromium."""

    findings: list[DemoFinding]
    answered: int
    """Requests of the demo that were answered."""
    failed: int
    """Requests of the demo that failed."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"demo": (WebDemoReadyLine, WebDemoLine)}


def announce(demo: WebDemo, url: str, *, as_json: bool) -> None:
    """Print the link to the page and the keys: as JSON on standard output, as text on standard error."""
    if as_json:
        Output(as_json=True).line(WebDemoReadyLine(url, [member.pid for member in demo.members]))
        return
    print_note(sys.stderr, f"{len(demo.members)} member processes serve {CLUSTER!r} in a private network")
    print_note(sys.stderr, f"open this link in a browser, within 10 minutes: {url}")
    keys = "press k to kill a member; q or Ctrl-C ends the demo" if has_keys() else "Ctrl-C ends the demo"
    print_note(sys.stderr, keys)


def report(findings: list[DemoFinding], market: Market, *, as_json: bool) -> int:
    """Print the findings of Chromium; return the exit code, 0 only if all claims hold."""
    line = WebDemoLine(findings, market.answered, market.failed)
    figures = (f"Requests: {market.answered:,} answered, {market.failed:,} failed",)
    return print_findings(findings, line, figures, as_json=as_json)
