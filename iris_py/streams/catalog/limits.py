"""Bounds of the catalog, each with the effect of a too small and a too large value."""

from __future__ import annotations

from typing import Final

#: Stores of a network. Too small: few disks share the streams; too large: each of them follows the catalog.
STORES_MAX: Final = 32
#: Ids of retired stores that are never admitted again. Too small: no further store can retire; too large: memory.
RETIRED_STORES_MAX: Final = 4096
#: Streams of a network. Too small: programs put several things into one; too large: every store has all of them in memory.
CATALOG_STREAMS_MAX: Final = 10_000
#: Ids of removed streams that are known as such. Too small: a store that was away longer keeps their files as unknown ones, and
#: a creation that was on its way as long counts again; too large: memory.
REMOVED_STREAMS_MAX: Final = 10_000
#: Stores of a partition. Too small: fewer disks may fail; too large: each record goes to all of them.
REPLICAS_MAX: Final = 3
#: Voters of the catalog. Too small: fewer of their disks may fail; too large: each change waits for more disks.
CATALOG_VOTERS: Final = 3
#: Bytes of a name: of a stream, a store, a host or a zone. Too small: long host names do not fit; too large: memory.
NAME_BYTES_MAX: Final = 255
#: Data keys of a stream. Too small: a stream that outlives many rotations gets no new one; too large: long answers to searches.
STREAM_KEYS_MAX: Final = 64
#: Generations of a secret that wrap the data keys of a stream. Too small: a rotation has to end before the next one; too large:
#: likewise long answers.
GENERATIONS_MAX: Final = 4
#: Bytes of one wrapped data key. Too small: a later cipher does not fit; too large: memory.
WRAP_BYTES_MAX: Final = 96
#: Wraps of all streams together. Too small: many streams with many data keys are refused; too large: the snapshot of the
#: catalog is over the bound of snapshots, and no new store can follow the catalog.
CATALOG_WRAPS_MAX: Final = 262_144
