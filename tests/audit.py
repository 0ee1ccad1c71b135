"""Reads what pip-audit found and says it: vulnerabilities, or that its database knows nothing, which is no good news.

Usage: audit.py REPORT, a file of `pip-audit --format json`; one that is empty, or missing, means that nothing could be asked.
The exit code is 0 if every package was looked up and none is vulnerable, 1 if one is, 2 if some could not be looked up.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2


def judge(report: str) -> tuple[int, str]:
    """Return the exit code and what to print.

    Args:
        report: The JSON, or nothing.
    """
    try:
        packages = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        packages = []
    vulnerable = [
        f"{package['name']} {package['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version'}"
        for package in packages
        for flaw in package.get("vulns", ())
    ]
    if vulnerable:
        return VULNERABLE, "\n".join(vulnerable)
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if len(skipped) == len(packages):
        return UNKNOWN, "pip-audit could not reach its database: nothing is known. Try again where there is a network."
    if skipped:
        return UNKNOWN, f"{len(skipped)} of {len(packages)} packages could not be looked up: {', '.join(skipped)}."
    return CLEAN, f"{len(packages)} packages, and no known vulnerability."


if __name__ == "__main__":
    path = Path(sys.argv[1])
    code, text = judge(path.read_text() if path.exists() else "")
    print(text)
    sys.exit(code)
