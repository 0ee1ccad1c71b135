"""Two joined clouds while something happens: a gateway is killed under load, a subscription is new, or nothing is to do."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.federation.scenes import Federated, Nats, Sites, far_reason, far_sites
from benchmarks.harness import Sample, Section, Trial
from benchmarks.peers.meter import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.federation.scenes import Scene

#: Requests under way when a gateway is killed.
_UNDER_WAY: Final = 32
#: New subjects, each with a first message right after its subscription.
_SUBJECTS: Final = 20
#: A message that has not come after so long is lost.
_WAIT_S: Final = 1.0
#: By then a subscription has become known everywhere.
_SETTLED_S: Final = 0.3
GATEWAYS: Final = "iris"


def section(*, quick: bool, is_nats_there: bool) -> Section:
    """Return what is looked at.

    Args:
        quick: Whether hardly anything is.
        is_nats_there: Whether NATS is, too.
    """
    seconds, rest_s = (1.5, 0.5) if quick else (6.0, 20.0)
    here = Sites()
    trials = [
        Trial(f"{GATEWAYS}, caller's gateway killed", partial(_kill_iris, here, seconds, is_near=True)),
        Trial(f"{GATEWAYS}, member's gateway killed", partial(_kill_iris, here, seconds, is_near=False)),
        Trial(f"{GATEWAYS}, at rest", partial(_rest, here, rest_s)),
    ]
    if is_nats_there:
        trials += [
            Trial("nats, server with the leafnode killed", partial(_kill_nats, here, seconds)),
            Trial("nats, one leafnode of two addresses", partial(_count_doubles, here, remotes=1)),
            Trial("nats, two leafnodes", partial(_count_doubles, here, remotes=2)),
        ]
    if not far_reason():
        trials.append(Trial(f"{GATEWAYS}, new subscriptions at 80 ms", partial(_first_messages, Federated)))
        joints = ("leafnode", "gateways") if is_nats_there else ()
        trials += [
            Trial(f"nats, new subscriptions at 80 ms, {joint}", partial(_first_messages, partial(Nats, joint=joint)))
            for joint in joints
        ]
    caption = (
        f"Killed: of two gateways (servers) on one side one is killed with SIGKILL, with {_UNDER_WAY} requests always under "
        "way. Iris itself repeats idempotent requests; with NATS the program does, after 1 s without a reply. New "
        f"subscriptions: each of {_SUBJECTS} subjects gets one message as soon as its subscriber reports that it has "
        "subscribed."
    )
    return Section("federation-faults", caption, trials)


def _kill_iris(sites: Sites, seconds: float, *, is_near: bool) -> Sequence[Sample]:
    return _kill(partial(Federated, sites, 2), lambda scene: (scene.near if is_near else scene.far)[0].pid, seconds)  # type: ignore[attr-defined]


def _kill_nats(sites: Sites, seconds: float) -> Sequence[Sample]:
    return _kill(partial(Nats, sites, "leafnode", 2), lambda scene: scene.servers[scene.joined_hub()].pid, seconds)  # type: ignore[attr-defined]


def _kill(make: Callable[[], Scene], find: Callable[[Scene], int], seconds: float) -> Sequence[Sample]:
    samples = []
    for name, is_idempotent in (("idempotent", True), ("others", False)):
        with make() as scene:
            found = scene.do(
                scene.caller, do="kill", pid=find(scene), under_way=_UNDER_WAY, seconds=seconds, is_idempotent=is_idempotent
            )
            after = scene.do(scene.member, do="state")
        failures = ", ".join(f"{count} {error}" for error, count in found["failures"].items())
        samples += [
            Sample(f"{name}: failed", found["failed"], "", failures),
            Sample(f"{name}: executed twice", after["doubles"], ""),
            Sample(f"{name}: next success after", found["next_ms"], "ms"),
        ]
    return samples


def _rest(sites: Sites, rest_s: float) -> Sequence[Sample]:
    with Federated(sites, is_warm=False) as scene:
        time.sleep(min(2.0, rest_s))  # what the first request has set going is over
        before, spent_s = scene.line_bytes(), scene.between_s()
        time.sleep(rest_s)
        passed, spent_s = scene.line_bytes() - before, scene.between_s() - spent_s
        grown = resident_bytes(scene.far[0].pid) - scene.far_bytes_before
    return [
        Sample("line, both directions", passed / rest_s, "bytes/s"),
        Sample("processor of a gateway", spent_s / len(scene.between) / rest_s * 1000, "ms/s"),
        Sample("memory for a bundle of 4 connections", grown / 1e6, "MB"),
    ]


def _count_doubles(sites: Sites, remotes: int) -> Sequence[Sample]:
    """Publish some numbered messages, and see how many come, and how many of them twice."""
    with Nats(sites, "leafnode", 2, remotes, is_warm=False) as scene:
        found = _watch(scene, _SETTLED_S)
    return [] if found is None else [Sample("delivered for one that was published", found / _SUBJECTS, "")]


def _first_messages(make: Callable[..., Scene]) -> Sequence[Sample]:
    with far_sites() as sites, make(sites, is_warm=False) as scene:
        found = _watch(scene, 0.0)
    return [] if found is None else [Sample("first messages that came", found / _SUBJECTS * 100, "%")]


def _watch(scene: Scene, pause_s: float) -> int | None:
    """Return how many messages came for `_SUBJECTS` new subjects with one message each; None if they cannot be subscribed to.

    Args:
        scene: Who publishes, and who subscribes.
        pause_s: How long to wait between both (seconds).
    """
    for number in range(_SUBJECTS):
        if scene.do(scene.member, do="watch", topic=f"news.{number}")["refusal"]:
            return None
        time.sleep(pause_s)
        scene.do(scene.caller, do="publish one", topic=f"news.{number}")
    time.sleep(_WAIT_S)
    found: int = scene.do(scene.member, do="watched")["watched"]
    return found
