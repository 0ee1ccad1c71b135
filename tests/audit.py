"""Asks for the vulnerabilities of what the locks name and says them, or that the database knows nothing, which is no good news.

Usage: audit.py PIP-AUDIT DIRECTORY LOCK...: the program, a directory for what it is given and for its reports, and the locks.
The exit code is 0 if every package was looked up and none is vulnerable, 1 if one is, 2 if some could not be looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2

#: For one report. pip-audit asks about one package after the other, and waits 15 s for each that does not answer.
REPORT_TIMEOUT_S = 1800


def entries(lock: str) -> list[str]:
    """Return the entries of a lock, each as one line: requirement, marker and hashes."""
    lines = [line for line in lock.splitlines() if not line.lstrip().startswith("#")]
    return [line.strip() for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]


def locked(lock: str) -> list[Requirement]:
    """Return what a lock names, without the hashes."""
    return [Requirement(entry.partition("--hash")[0]) for entry in entries(lock)]


def batches(locks: Iterable[str]) -> list[list[str]]:
    """Return lists of ``name==version`` that have all that the locks name, for every system and Python, each once.

    pip-audit takes one version of a package only, and passes over what is for another Python: so no list has two versions of a
    package, and none has markers.
    """
    versions: dict[str, list[str]] = {}
    for requirement in (each for lock in locks for each in locked(lock)):
        known = versions.setdefault(requirement.name, [])
        if (text := f"{requirement.name}{requirement.specifier}") not in known:
            known.append(text)
    most = max(map(len, versions.values()), default=0)
    return [[known[number] for known in versions.values() if number < len(known)] for number in range(most)]


def judge(reports: Sequence[str], asked: Iterable[str]) -> tuple[int, str]:
    """Return the exit code and what to print.

    Args:
        reports: What pip-audit wrote, as JSON; an empty one means that nothing could be asked.
        asked: ``name==version`` of all that was to be looked up.
    """
    packages = [package for report in reports for package in _packages(report)]
    vulnerable = [
        f"{package['name']} {package['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version'}"
        for package in packages
        for flaw in package.get("vulns", ())
    ]
    if vulnerable:
        return VULNERABLE, "\n".join(vulnerable)
    found = {f"{package['name']}=={package['version']}" for package in packages if "skip_reason" not in package}
    everything = list(asked)
    unknown = [name for name in everything if name not in found]
    if not found or len(unknown) == len(everything):
        return UNKNOWN, "pip-audit could not reach its database: nothing is known. Try again where there is a network."
    if unknown:
        return UNKNOWN, f"{len(unknown)} of {len(everything)} packages could not be looked up: {', '.join(unknown)}."
    return CLEAN, f"{len(everything)} packages, and no known vulnerability."


def _packages(report: str) -> list[dict[str, Any]]:
    try:
        return list(json.loads(report)["dependencies"])
    except (ValueError, KeyError, TypeError):
        return []


def ask(program: str, requirements: Path, report: Path) -> str:
    """Let pip-audit look up a list; return its report, empty if there is none."""
    report.unlink(missing_ok=True)
    options = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "--output", str(report))
    done = subprocess.run(
        [program, "--requirement", str(requirements), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=REPORT_TIMEOUT_S,
    )
    report.with_suffix(".log").write_text(done.stdout + done.stderr)
    return report.read_text() if report.exists() else ""


def main(program: str, directory: Path, locks: Sequence[Path]) -> int:
    """Ask, and print what comes of it; return the exit code."""
    directory.mkdir(parents=True, exist_ok=True)
    lists, reports = batches(lock.read_text() for lock in locks), []
    for number, names in enumerate(lists):
        requirements = directory / f"{number}.txt"
        requirements.write_text("\n".join(names) + "\n")
        reports.append(ask(program, requirements, directory / f"{number}.json"))
    code, text = judge(reports, [name for names in lists for name in names])
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]]))
