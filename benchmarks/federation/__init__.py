"""Two clouds joined by gateways, beside one cloud without any, and beside servers of NATS that are joined.

A caller in one cloud uses a member in another one; each is a process, and so is each gateway or server. All run on this
machine, and take turns. Iris encrypts and authenticates everywhere. NATS has TLS between its servers, and nothing towards its
clients.

Not measured: several callers or members, and gateways on machines of their own. With more busy processes than processors the
requests per second say what the machine does, and those for each second of a gateway's processor what a gateway does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.federation import faults
from benchmarks.federation.nats_server import missing_reason
from benchmarks.federation.scenes import Direct, Federated, Nats, Sites, far_reason, far_sites
from benchmarks.harness import BenchmarkFailed, Sample, Section, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.federation.scenes import Scene

#: Requests that one caller has under way at once.
UNDER_WAY: Final = 256
DIRECT: Final = "iris, one cloud"
GATEWAYS: Final = "iris, two gateways"
_SLOW_BYTES_S: Final = 2_000_000

__all__ = ["far_section", "faults_section", "section", "sections"]


def sections(*, quick: bool) -> list[Section]:
    """Return all of them; those that cannot be measured here are left out, and say why in the caption of the first one."""
    found = [section(quick=quick), faults_section(quick=quick)]
    return found if far_reason() else [found[0], far_section(quick=quick), found[1]]


def section(*, quick: bool) -> Section:
    """Return what is measured without a delay."""
    seconds, count = (0.2, 500) if quick else (3.0, 30_000)
    blocks = 4 if quick else 100

    def trial(name: str, make: Callable[[], Scene]) -> Trial:
        return Trial(name, partial(_measure, make, seconds, count, blocks))

    here = Sites()
    trials = [trial(DIRECT, partial(Direct, here)), trial(GATEWAYS, partial(Federated, here))]
    if not missing_reason():
        trials += [
            trial("nats, one server", partial(Nats, here, "direct")),
            trial("nats, leafnode", partial(Nats, here, "leafnode")),
            trial("nats, gateways", partial(Nats, here, "gateways")),
        ]
    caption = (
        f"Round trips of 1 KiB; requests/s with {UNDER_WAY} under way, and for each second of the processor of one gateway (or "
        "server); publications of 1 KiB at the subscriber; bulk in messages of 1 MB. All processes on this machine, no delay."
    )
    return Section("federation", _with_reasons(caption), trials, (DIRECT,))


def far_section(*, quick: bool) -> Section:
    """Return what is measured over a line of 80 ms.

    Raises:
        BenchmarkFailed: There can be no such line on this machine.
    """
    if far_reason():
        raise BenchmarkFailed(far_reason())
    seconds = 0.5 if quick else 5.0
    full = partial(_measure_far, seconds=seconds)
    slow = partial(_measure_beside_bulk, seconds=seconds)
    trials = [Trial(DIRECT, partial(full, Direct)), Trial(GATEWAYS, partial(full, Federated))]
    joints = () if missing_reason() else ("leafnode", "gateways")
    trials += [Trial(f"nats, {joint}", partial(full, partial(Nats, joint=joint))) for joint in joints]
    trials.append(Trial(f"{GATEWAYS}, slow line", partial(slow, Federated)))
    trials += [Trial(f"nats, {joint}, slow line", partial(slow, partial(Nats, joint=joint))) for joint in joints]
    caption = (
        "A round trip of 80 ms between both clouds, in network namespaces. Requests of 1 KiB, one after the other, and with "
        f"{UNDER_WAY} under way; bulk in messages of 1 MB. Slow line: requests of 128 bytes while bulk fills 2 MB/s."
    )
    return Section("federation-far", _with_reasons(caption), trials, (DIRECT,))


def faults_section(*, quick: bool) -> Section:
    """Return what happens when a gateway is killed, at the first message, and at rest."""
    return faults.section(quick=quick, is_nats_there=not missing_reason())


def _with_reasons(caption: str) -> str:
    return " ".join(filter(None, (caption, missing_reason(), f"Left out: {far_reason()}." if far_reason() else "")))


def _measure(make: Callable[[], Scene], seconds: float, count: int, blocks: int) -> Sequence[Sample]:
    with make() as scene:
        alone = scene.do(scene.caller, do="requests", under_way=1, seconds=seconds)
        samples = [Sample("round trip, p50", alone["p50_ms"], "ms"), Sample("round trip, p99", alone["p99_ms"], "ms")]
        before_s = scene.between_s()
        many = scene.do(scene.caller, do="requests", under_way=UNDER_WAY, seconds=seconds)
        spent_s = (scene.between_s() - before_s) / max(1, len(scene.between))
        samples.append(Sample(f"requests, {UNDER_WAY} under way", many["rate"], "/s"))
        if spent_s:
            samples.append(Sample("for a gateway's processor second", many["count"] / spent_s, ""))
        samples += _publications(scene, count)
        bulk = scene.do(scene.caller, do="bulk", count=blocks)
        samples.append(Sample("bulk", bulk["rate"] / 1e6, "MB/s"))
    return samples


def _publications(scene: Scene, count: int) -> list[Sample]:
    before = scene.line_bytes()
    found = scene.publish(count)
    if found is None:
        return []
    lost = count - found["seen"]
    samples = [Sample("publications", found["rate"], "/s", f"lost {lost:,} of {count:,}" if lost else "")]
    passed = scene.line_bytes() - before
    if passed:
        samples.append(Sample("line bytes of publications / payload", passed / (count * 1024), ""))
    return samples


def _measure_far(make: Callable[..., Scene], seconds: float) -> Sequence[Sample]:
    with far_sites() as sites, make(sites, is_warm=False) as scene:
        alone = scene.do(scene.caller, do="requests", under_way=1, seconds=seconds)
        many = scene.do(scene.caller, do="requests", under_way=UNDER_WAY, seconds=seconds)
        bulk = scene.do(scene.caller, do="bulk", count=100 if seconds > 1 else 4)
    return [
        Sample("round trip, p50", alone["p50_ms"], "ms"),
        Sample("round trip, p99", alone["p99_ms"], "ms"),
        Sample(f"requests, {UNDER_WAY} under way", many["rate"], "/s"),
        Sample("bulk", bulk["rate"] / 1e6, "MB/s"),
    ]


def _measure_beside_bulk(make: Callable[..., Scene], seconds: float) -> Sequence[Sample]:
    with far_sites(_SLOW_BYTES_S) as sites, make(sites, is_warm=False) as scene:
        found = scene.do(scene.caller, do="beside bulk", seconds=seconds)
    return [
        Sample("round trip beside bulk, p50", found["p50_ms"], "ms"),
        Sample("round trip beside bulk, p99", found["p99_ms"], "ms"),
    ]
