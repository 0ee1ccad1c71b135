"""Defaults of the public methods: each is stated once, for nodes with and without ``await`` and for connectors."""

from __future__ import annotations

from typing import Final

#: How long a request waits for its reply, in seconds.
REQUEST_TIMEOUT_S: Final = 5.0
#: How long a survey waits, in seconds. A single member that does not answer makes it last that long, so it is shorter than that
#: of a request; handlers that only look something up answer in time from any continent.
SURVEY_TIMEOUT_S: Final = 1.0
#: How long asking nodes about themselves may take, in seconds. Too small: nodes that have just died hold the others up; too
#: large: whoever looks waits for them.
ASK_TIMEOUT_S: Final = 5.0
#: Nodes that are asked for a sample of a large network. The error of a sum is that of one node's number over eight.
NODES_SAMPLED: Final = 64
#: How long opening a tunnel may take, in seconds: as for a request.
TUNNEL_TIMEOUT_S: Final = 5.0

#: How long a step of a rotation waits for the neighbours, which take it within a round trip. Too small: one that is busy just
#: then is called missing.
ROTATION_TIMEOUT_S: Final = 10.0

#: How long a look at a rotation waits for what neighbours say of it. Those that have no administrator never do.
ROTATION_ANSWER_S: Final = 1.0
#: How long leaving and closing wait for running handlers before they are cancelled, in seconds. Too small: work is cut off; too
#: large: a stuck handler holds up the end of the program.
DRAIN_TIMEOUT_S: Final = 30.0
#: Largest payload of one message that a node sends. Large enough for any document or model shard that fits a request, small
#: enough that a handful in flight does not exhaust a small machine.
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024

#: Requests of one registration that run at once, for handlers that await. More only queue in the handler's own resources.
CONCURRENCY: Final = 128
#: Requests of one registration that run at once, for plain functions: each has a thread then. As many as thread pools
#: usually have.
THREADS: Final = 32
#: Requests that wait at a registration before it answers that it is full.
HANDLER_QUEUE_MESSAGES: Final = 1024
#: Payload that waits at a registration before it answers that it is full: four of the largest messages, or 64 KiB for each of
#: ``HANDLER_QUEUE_MESSAGES``. Too small: large requests are turned away though they would have had their turn; too large: a
#: member that falls behind takes the memory of its machine before anybody hears of it.
HANDLER_QUEUE_BYTES: Final = 64 * 1024 * 1024

#: What a subscription queues. One read of tiny messages from each of a few publishers fits.
SUBSCRIPTION_QUEUE_MESSAGES: Final = 65_536
SUBSCRIPTION_QUEUE_BYTES: Final = 64 * 1024 * 1024

#: Tunnels of one registration at once. With full windows of 1 MiB they hold a quarter of a gigabyte.
TUNNELS: Final = 256
#: What a receiver of a tunnel lets come before the application takes any of it. Too small: the sender waits for credit on long
#: ways (1 MiB fills 80 Mbit/s across an ocean); too large: memory for each tunnel whose reader is slow.
TUNNEL_WINDOW_BYTES: Final = 1024 * 1024
