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
