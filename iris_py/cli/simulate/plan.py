"""The plan of a simulation: the checked options of `iris simulate`."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from iris_py.errors import ConfigurationError

__all__ = ["LAYERS", "Partition", "SimulationPlan", "parse_partition"]

LAYERS: Final = ("ring", "groups", "full")

NODES: Final = 1000
NODES_FULL: Final = 50  # of the layer full, where each node does much more

#: Maximum number of nodes by layer. Idle nodes of the ring take 35 KB each; nodes of other layers are larger and slower.
NODES_MAX: Final = {"ring": 200_000, "groups": 5_000, "full": 2_000}

#: Maximum number of nodes in the layer full with random faults: all state is compared with the truth four times per second.
SCHEDULE_NODES_MAX: Final = 500

#: Maximum number of nodes with real failure detectors by default: they send four datagrams per node and second.
DETECTOR_NODES_MAX: Final = 2_000

#: Minimum mean session of a node (seconds): a join takes half a second, so nodes with shorter sessions do little else.
SESSION_S_MIN: Final = 10.0

LOOKUPS_MAX: Final = 10_000_000
MINUTES_MAX: Final = 24 * 60.0
LOSS_MAX: Final = 0.5
PARTITION_S_MAX: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Partition:
    """A cut through the simulated network, and its duration."""

    part: float
    """Fraction of the nodes on the smaller side."""
    duration_s: float
    """Duration of the cut."""

    def __str__(self) -> str:
        """Return the cut as the text of the option."""
        return f"{self.part}:{self.duration_s}"


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """The options of a simulation. All random choices derive from the seed."""

    layer: str = "ring"
    nodes: int = NODES
    session_s: float | None = None
    """Mean lifetime of a node; None for the whole simulation."""
    minutes: float = 10.0
    """Duration of the churn."""
    partition: Partition | None = None
    kill: float = 0.0
    """The fraction of the nodes that ends at once."""
    lookups: int = 10_000
    loss: float = 0.0
    zones: int = 0
    detectors: bool | None = None
    """Whether real failure detectors run; None: where they are affordable."""
    members: int = 1000
    subscribers: int = 1000
    requesters: int = 100
    seed: int = 1

    def check(self) -> None:
        """Refuse plans that cannot be simulated.

        Raises:
            ConfigurationError: A value is out of its bounds, which the text names.
        """
        if self.layer not in LAYERS:
            raise ConfigurationError(f"--layer {self.layer}: choose one of {', '.join(LAYERS)}")
        _within("--nodes", self.nodes, 2, NODES_MAX[self.layer])
        _within("--lookups", self.lookups, 0, LOOKUPS_MAX)
        _within("--loss", self.loss, 0.0, LOSS_MAX)
        _within("--kill", self.kill, 0.0, 0.9)
        _within("--zones", self.zones, 0, 1000)
        _within("--minutes", self.minutes, 0.1, MINUTES_MAX)
        if self.session_s is not None:
            _within("--session-s", self.session_s, SESSION_S_MIN, math.inf)
        if self.layer == "groups":
            _within("--members", self.members, 1, NODES_MAX["groups"])
            _within("--subscribers", self.subscribers, 0, NODES_MAX["groups"])
            _within("--requesters", self.requesters, 1, 256)
            if self.session_s is not None or self.partition is not None or self.loss or self.zones:
                raise ConfigurationError("--layer groups supports only --kill: its ring is perfect; try --layer full")

        if self.layer == "full":
            has_disaster = bool(self.kill) or self.partition is not None
            if self.session_s is not None or self.zones or (self.loss and not has_disaster):
                raise ConfigurationError(
                    "--layer full draws its faults from --seed: use only --nodes, --minutes and --seed, or --kill or "
                    "--partition with --loss"
                )
            if not has_disaster:
                _within("--nodes", self.nodes, 2, SCHEDULE_NODES_MAX)

    @property
    def has_detectors(self) -> bool:
        """Whether nodes run real failure detectors."""
        return self.nodes <= DETECTOR_NODES_MAX if self.detectors is None else self.detectors

    @property
    def command(self) -> str:
        """The command line that repeats the simulation."""
        words = ["iris", "simulate"]
        for field in fields(self):
            value, option = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            if field.name == "detectors" and value is not None:
                words.append("--detectors" if value else "--no-detectors")
            elif value != field.default or field.name in {"nodes", "seed"}:
                words += [option, str(value)]
        return " ".join(words)

    @property
    def title(self) -> str:
        """The plan as a heading."""
        if self.layer == "groups":
            words = [f"{self.members:,} members, {self.subscribers:,} subscribers, {self.requesters:,} requesters"]
        else:
            words = [f"{self.nodes:,} nodes"]
        if self.session_s is not None:
            words.append(f"sessions of {_duration(self.session_s)}")
        if self.loss:
            words.append(f"{self.loss:.1%} loss")
        if self.zones:
            words.append(f"{self.zones} zones")
        if self.layer == "full" and not self.kill and self.partition is None:
            words.append(f"{_duration(60 * self.minutes)} of faults")
        if self.kill:
            words.append(f"{self.kill:.0%} killed")
        if self.partition is not None:
            words.append(f"split for {_duration(self.partition.duration_s)}")
        return ", ".join(words)


def parse_partition(text: str | None) -> Partition | None:
    """Parse the option ``PART:SECONDS``; None stays None.

    Raises:
        ConfigurationError: The text has another form.
    """
    if text is None:
        return None
    part, _, duration = text.partition(":")
    try:
        partition = Partition(float(part), float(duration))
    except ValueError:
        raise ConfigurationError(
            f"--partition {text}: write PART:SECONDS, such as 0.5:600 for two halves and ten minutes"
        ) from None
    _within("--partition PART", partition.part, 0.01, 0.5)
    _within("--partition SECONDS", partition.duration_s, 1.0, PARTITION_S_MAX)
    return partition


def _within(option: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # which is false for NaN
        limits = f"at least {least:g}" if most == math.inf else f"from {least:,g} to {most:,.10g}"
        raise ConfigurationError(f"{option} {value:g}: choose a value {limits}")


def _duration(seconds: float) -> str:
    for unit_s, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds:.3g} s"
