"""Bounds of streams, each with the effect of a too small and a too large value."""

from __future__ import annotations

from typing import Final

#: Bytes of a batch, unless a single record is larger. Too small: small records pay for a header each; too large: records wait
#: longer for their batch.
BATCH_BYTES_MAX: Final = 224 << 10
#: Bytes of a record: its value, key and headers. Too small: programs split their values; too large: a record takes much memory
#: at its reader.
RECORD_BYTES_MAX: Final = 8 << 20
#: Bytes of a key. Too small: long names are refused as keys; too large: keys take the place of values.
KEY_BYTES_MAX: Final = 4096
#: Partitions of a stream. Too small: few readers share the work; too large: each partition needs a file and its own syncs.
PARTITIONS_MAX: Final = 64
#: Partitions of all streams of a directory. Too small: many small streams end here; too large: each has an open file, and the
#: start reads for long.
STORE_PARTITIONS_MAX: Final = 256
#: Bytes and batches of a partition that are not yet on the disk. Too small: a group of batches is small beside the time of a
#: sync; too large: a slow disk fills the memory.
UNSYNCED_BYTES_MAX: Final = 16 << 20
UNSYNCED_BATCHES_MAX: Final = 1024
#: Bytes of one read from a disk for a reader. Too small: a turn of a thread for few records; too large: many readers fill the
#: memory.
READ_BYTES_MAX: Final = 1 << 20
#: The default age of records, in seconds, and bytes of a partition. Too small: records are missed; too large: the disk fills.
STREAM_AGE_S: Final = 7 * 86_400.0
STREAM_BYTES: Final = 1 << 30
#: The smallest bytes of a partition. Too small: each batch makes a file; too large: a small stream keeps more than it wants.
STREAM_BYTES_MIN: Final = 1 << 20
#: A partition has at least as many segments when it is full. Too small: retention deletes much at once; too large: many files.
SEGMENTS_MIN: Final = 8
#: How often the synced part of a log is noted on the disk, in seconds. Too small: a second sync for each group of batches; too
#: large: damage to the newest records after a power loss looks like a torn write.
MARK_INTERVAL_S: Final = 0.25
#: How often old segments are looked for, in seconds. Too small: work for nothing; too large: records outlive their age.
RETENTION_INTERVAL_S: Final = 60.0
#: How long a removed stream stays in the trash, in seconds. Too small: a mistake cannot be taken back; too large: a full disk.
TRASH_AGE_S: Final = 86_400.0
#: Threads for the writes and the reads of all partitions. Too small: partitions wait for each other's syncs; too large: more
#: threads are no faster.
WRITE_THREADS: Final = 8
READ_THREADS: Final = 4
#: The smallest segment. Too small: a file for each few batches; too large: a small stream has few segments to delete.
SEGMENT_BYTES_MIN: Final = 128 << 10
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
