"""The auditor of a gateway: turns events into audit records, and writes them to the log and to a file (15.17).

`AuditFile` is the file: lines are appended, and the file may be moved away at any time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from iris_py.errors import ConfigurationError
from iris_py.federation.audit import Audit
from iris_py.federation.connections import HandshakeRefused
from iris_py.federation.events import BundleChanged, OffersChanged, UseRefused
from iris_py.logs import EventLogger
from iris_py.net.process import free_bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from iris_py.federation.bundle import Bundle, Incoming
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import FederationEvent
    from iris_py.federation.rules import Kind

__all__ = ["AuditFile"]

#: Only the owner may read the file, with its names of clusters and addresses.
MODE = 0o600


class AuditFile:
    """The append-only file of audit records. The methods block: call them in a thread, one at a time.

    Args:
        path: The file; created if missing.

    Attributes:
        path: The file.
        free_bytes: Free space on the disk at the last write.

    Raises:
        ConfigurationError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = self._open()
            self.free_bytes = free_bytes_of(os.fstatvfs(self._descriptor))
        except OSError as exc:
            raise ConfigurationError(
                f"audit_file: {path} cannot be opened: {exc.strerror}. Correct the path in [gateway] or its permissions."
            ) from exc

    def write(self, lines: Sequence[str]) -> None:
        """Append lines.

        Raises:
            OSError: Not all lines could be written: the disk is full, for example.
        """
        self.free_bytes = free_bytes_of(os.fstatvfs(self._descriptor))
        left = memoryview("".join(f"{line}\n" for line in lines).encode())
        while left:
            left = left[os.write(self._descriptor, left) :]

    def reopen(self) -> None:
        """Open the file again under the same name, after the old one was moved away.

        Raises:
            OSError: The file cannot be opened; the old one stays in use.
        """
        before, self._descriptor = self._descriptor, self._open()
        os.close(before)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)


logger = logging.getLogger("iris_py.federation.audit")
_own_logger = EventLogger("iris_py.federation")

#: The period (seconds) of totals and of splitting link bytes among rules. Too small: many lines; too large: totals come late.
TOTALS_S = 60.0
#: The period (seconds) of writes. Too small: a write for each record; too large: a crash loses more records.
WRITE_S = 0.2
#: Reasons of refused handshakes counted separately; others are counted together. Too small: metrics say less; too large: a
#: stranger makes ever more of them.
REASONS_MAX = 32
OTHER = "other"
#: Refusals logged only here, as warnings. The gateway logs refused handshakes itself, with advice.
_WARNINGS = ("use_refused", "limited")


class Auditor:
    """The auditor of a gateway: records events of the federation core, in the log and in a file.

    Args:
        file: An additional file for records; None: only the log.
        clock: Returns the time of day, in seconds since 1970.

    Attributes:
        refused_handshakes: The number of refused handshakes, by reason.
        unwritten: The number of records that the file lacks.
        problem: The error of the last write; empty after a success.
    """

    def __init__(self, core: FederationCore, file: AuditFile | None = None, clock: Callable[[], float] = time.time) -> None:
        self.refused_handshakes: dict[str, int] = {}
        self.unwritten = 0
        self._core = core
        self._file = file
        self._audit = Audit(clock)
        self._loop = asyncio.get_running_loop()
        self._versions: dict[Bundle, int] = {}  # the last recorded catalogue
        self._writing: asyncio.Task[None] | None = None
        self.problem = ""
        self._is_closed = False
        self._timer = self._loop.call_later(TOTALS_S, self._tell_totals)

    # -- what happens

    def handle(self, event: FederationEvent) -> None:
        """Record an event of the federation core, if the audit covers this kind of event."""
        now = self._loop.time()
        if isinstance(event, BundleChanged):
            self._tell_bundle(event, now)
        elif isinstance(event, OffersChanged):
            self._tell_catalogues(event.alias)
        elif isinstance(event, HandshakeRefused):
            reason = event.reason.partition(":")[0]
            if reason not in self.refused_handshakes and len(self.refused_handshakes) >= REASONS_MAX - 1:
                reason = OTHER
            self.refused_handshakes[reason] = self.refused_handshakes.get(reason, 0) + 1
            self._audit.handshake_refused(event.address, event.reason, now)
        elif isinstance(event, UseRefused):
            if event.reason == "limited":
                self._audit.limited(event.alias, self._pattern_of(event), event.use, now)
            else:
                self._audit.use_refused(event.alias, event.name, event.use, event.reason, now)
        self._schedule()

    def request_ended(self, incoming: Incoming, outcome: str) -> None:
        """Record a neighbour's finished request, if its rule asks for a record of every request.

        Args:
            outcome: The outcome: "done", "timeout", ...
        """
        if incoming.rule.audit != "all":
            return
        bundle, call = incoming.bundle, incoming.call
        number = f"{bundle.id.hex()[:8]}-{incoming.number}"
        self._audit.request(bundle.alias, incoming.rule.outside, call.name, "request", len(call.payload), outcome, number)
        self._schedule()

    def reloaded(self, changes: Mapping[str, object], error: str = "") -> None:
        """Record a reload of the settings, or its failure."""
        self._audit.reload(changes, error)
        self._schedule()

    def status(self) -> dict[str, object]:
        """Return the state of the audit file, as plain values."""
        if self._file is None:
            return {"file": ""}
        return {
            "file": str(self._file.path),
            "problem": self.problem,
            "unwritten": self.unwritten,
            "free_bytes": self._file.free_bytes,
        }

    # -- the file

    def reopen(self) -> None:
        """Open the audit file again under the same name, because the old one may have been moved away."""
        if self._file is not None and not self._is_closed:
            self._start(self._file.reopen)

    def use(self, file: AuditFile | None) -> None:
        """Write further audit records to another file."""
        before, self._file = self._file, file
        if before is not None:
            self._start(before.close)

    async def close(self) -> None:
        """Record the last totals, and write all remaining records. Harmless if repeated."""
        if self._is_closed:
            return
        self._tell_totals()
        self._is_closed = True
        self._timer.cancel()
        if self._writing is not None:
            await self._writing
        if self._audit.has_records:
            await self._write(0.0)
        if self._file is not None:
            self._file.close()

    def abort(self) -> None:
        """End the auditor at once, without writing the remaining records."""
        self._is_closed = True
        self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()

    # --

    def _pattern_of(self, event: UseRefused) -> str:
        """Return the exported pattern of a refused use's rule; without a rule, the name itself."""
        neighbour = self._core.lines.neighbours.get(event.alias)
        kind: Kind = "topic" if event.use in ("subscribe", "publish") else "cluster"
        rule = None if neighbour is None else neighbour.export_for(kind, event.name)
        return event.name if rule is None else rule.outside

    def _tell_bundle(self, event: BundleChanged, now: float) -> None:
        bundle = event.bundle
        address, gateway = bundle.address or bundle.host, bundle.gateway.hex()
        if event.reason:
            self._versions.pop(bundle, None)
            self._audit.link_down(bundle.alias, address, gateway, event.reason, now - bundle.opened_at)
        else:
            self._audit.link_up(bundle.alias, address, gateway)

    def _tell_catalogues(self, alias: str) -> None:
        neighbour = self._core.lines.neighbours.get(alias)
        for bundle, offer in ({} if neighbour is None else neighbour.offers).items():
            if self._versions.get(bundle) != offer.version:
                self._versions[bundle] = offer.version
                self._audit.catalogue(alias, bundle.gateway.hex(), offer.version, len(offer.entries))

    def _tell_totals(self) -> None:
        self._core.lines.count_bytes()
        for alias, neighbour in self._core.lines.neighbours.items():
            self._audit.totals(alias, neighbour.accounts)
        self._schedule()
        self._timer = self._loop.call_later(TOTALS_S, self._tell_totals)

    def _schedule(self) -> None:
        if self._audit.has_records and not self._is_closed:
            self._start(None)

    def _start(self, change: Callable[[], None] | None) -> None:
        """Start to write the waiting records, after an optional change of the file."""
        before = self._writing if self._writing is not None and not self._writing.done() else None
        if before is None or change is not None:  # otherwise the running task writes these, too
            self._writing = self._loop.create_task(self._write(WRITE_S, before, change))

    async def _write(
        self, pause_s: float, before: asyncio.Task[None] | None = None, change: Callable[[], None] | None = None
    ) -> None:
        """Write records until none are left."""
        if before is not None:
            await before
        if change is not None:
            await self._block(change, 0)
        while True:
            if pause_s and not self._is_closed:
                await asyncio.sleep(pause_s)
            lines = self._audit.take()
            if not lines:
                return
            for line in lines:
                # Bypass the log's limit of ten lines a minute: these lines are the audit itself.
                logger.log(_level_of(line), "%s", line, extra={"iris": msgspec.json.decode(line)})
            if self._file is not None:
                await self._block(partial(self._file.write, lines), len(lines))

    async def _block(self, use: Callable[[], None], records: int) -> None:
        """Use the file in a thread; count failures, and log only the first until the file works again."""
        try:
            await self._loop.run_in_executor(None, use)
        except OSError as exc:
            self.unwritten += records
            if not self.problem:
                _own_logger.error(
                    "audit_unwritten",
                    "the audit cannot be written: %s. The gateway continues without the audit.",
                    exc.strerror or exc,
                )
            self.problem = exc.strerror or str(exc) or type(exc).__name__
        else:
            if self.problem:
                _own_logger.warning(
                    "audit_written",
                    "the audit is written again; %d records are missing",
                    self.unwritten,
                    missing=self.unwritten,
                )
            self.problem = ""


def _level_of(line: str) -> int:
    """Return the log level of a record: a refused use is a warning."""
    return logging.WARNING if any(f'"event": "{event}"' in line for event in _WARNINGS) else logging.INFO
