"""docs/doctor.md has every check, in the order of the code, with what it needs and the numbers of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from iris_py.cli.outcome import ExitCode
from iris_py.doctor import answers, cluster, machine, network_surroundings, partition, prober_node
from iris_py.doctor.examination import CHECKS
from iris_py.overview import slowness

if TYPE_CHECKING:
    from iris_py.doctor.check import DoctorCheck

PAGE = (Path(__file__).parents[4] / "docs" / "doctor.md").read_text()
SECTIONS = dict(re.findall(r"^### ([a-z-]+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
#: What the page calls the checks without which nobody is asked.
REACHED = {"config", "secret", "discovery", "seeds", "seed-secret", "other-network"}


def needs_in(text: str) -> set[str]:
    """Return the checks that a section says it needs, those for "others are reached" among them."""
    (said,) = re.findall(r"\*Needs:\s([^*]*?)\.\*", text, re.DOTALL)
    words = set(re.findall(r"[a-z-]+", said))
    needed = words & {check.name for check in CHECKS}
    if "udp" in needed:
        needed |= needs_in(SECTIONS["udp"])
    return needed | (REACHED if "reached" in words else set())


def test_every_check_has_its_section() -> None:
    assert list(SECTIONS) == [check.name for check in CHECKS]
    for name, text in SECTIONS.items():
        assert "**FAULT**: " in text, name
        assert "**Do**: " in text, name


def test_the_sections_say_what_each_check_needs() -> None:
    def is_right(check: DoctorCheck) -> bool:
        return needs_in(SECTIONS[check.name]) == set(check.needs)

    assert [check.name for check in CHECKS if not is_right(check)] == []


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"The exit code is {int(ExitCode.FAULT)} if" in PAGE
    for name, numbers in {
        "limits": (f"{machine.DESCRIPTORS_MIN} descriptors", f"{machine.DESCRIPTORS_WANTED:,}"),
        "udp": (f"up to {prober_node.ECHOED_MAX} nodes",),
        "dial-back": (f"up to {prober_node.DIALLERS_MAX} do it",),
        "clock": (f"{answers.CLOCK_OFFSET_MAX_S:g} s",),
        "disk": (f"{machine.FREE_FAULT_BYTES >> 10} KiB", f"{machine.FREE_WARNING_BYTES >> 20} MiB"),
        "stalls": (f"for {answers.STALL_FAULT_S:g} s", f"for {answers.STALL_WARNING_S:g} s"),
        "parts": (
            f"Up to {network_surroundings.DEATHS_ASKED_MAX} nodes",
            f"at least {partition.TOGETHER_MIN} nodes",
            f"within {partition.TOGETHER_S:g} s",
        ),
        "clouds": (f"up to {network_surroundings.LINES_PROBED_S:g} s", f"{machine.FREE_WARNING_BYTES >> 20} MiB"),
        "ring": (f"after {prober_node.RING_AGAIN_S:g} s", f"Up to {prober_node.RING_MAX} nodes"),
        "cluster": (f"{slowness.SLOW_S * 1000:g} ms",),
    }.items():
        for number in numbers:
            assert number in " ".join(SECTIONS[name].split()), (name, number)
    assert (partition.SHARE_MIN, network_surroundings.DEATHS_S) == (0.2, 3600.0)  # a fifth, the last hour
    assert (machine.USED_FAULT, machine.USED_WARNING) == (0.9, 0.7)  # nine tenths, seven tenths
    assert (machine.WITHHELD_FAULT, machine.WITHHELD_WARNING) == (0.25, 0.05)  # a quarter, a twentieth
    assert (cluster.FAILED_FAULT, cluster.FAILED_WARNING, slowness.SLOW_TIMES) == (0.5, 0.05, 5.0)
