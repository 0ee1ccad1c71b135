"""Defaults of the public methods, each stated once for the asyncio API, the synchronous API and connectors."""

from __future__ import annotations

from typing import Final

#: Timeout of a request in seconds.
REQUEST_TIMEOUT_S: Final = 5.0
#: Timeout of a survey in seconds. A single member without an answer makes a survey last this long, so it is shorter than the
#: timeout of a request. Handlers that only look up a value answer in time from any continent. Too small: distant members
#: are missing; too large: a silent member delays every survey.
SURVEY_TIMEOUT_S: Final = 1.0
#: Timeout in seconds for asking nodes about themselves. Too small: busy nodes are missing; too large: nodes that have just died
#: delay the answer.
ASK_TIMEOUT_S: Final = 5.0
#: Nodes asked for a sample of a large network. The standard error of a mean is one eighth of the standard deviation of single
#: nodes.
NODES_SAMPLED: Final = 64
#: Timeout in seconds for opening a tunnel, as for a request.
TUNNEL_TIMEOUT_S: Final = 5.0

#: Time in seconds that a step of a rotation waits for the linked nodes, which need one round trip. Too small: a busy node is
#: reported as missing.
ROTATION_TIMEOUT_S: Final = 10.0

#: Time in seconds that a query of the progress of a rotation waits for the answers of the linked nodes. Nodes without an
#: administrator never answer.
ROTATION_ANSWER_S: Final = 1.0
#: Time in seconds that leaving and closing wait for running handlers before cancelling them. Too small: work is cut off; too
#: large: a stuck handler delays the end of the program.
DRAIN_TIMEOUT_S: Final = 30.0
#: Largest payload of one message that a node sends. Large enough for any document or model shard that fits a request, small
#: enough that a handful in flight does not exhaust a small machine.
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024

#: Concurrent requests of one registration whose handler is an ``async def``. More would only queue in the handler's own
#: resources.
CONCURRENCY: Final = 128
#: Concurrent requests of one registration whose handler is a plain function, with a thread for each: the usual size of thread
#: pools.
THREADS: Final = 32
#: Waiting requests of a registration (a handler that serves a cluster); the member rejects further requests as full.
HANDLER_QUEUE_MESSAGES: Final = 1024
#: Waiting payload of a registration in bytes; the member rejects further requests as full: four of the largest messages, or 64
#: KiB for each of ``HANDLER_QUEUE_MESSAGES``. Too small: large requests are rejected that would have had their turn; too large:
#: a member that falls behind fills the memory of its machine unnoticed.
HANDLER_QUEUE_BYTES: Final = 64 * 1024 * 1024

#: The queue of a subscription, in messages and bytes. One read of tiny messages from each of a few publishers fits.
SUBSCRIPTION_QUEUE_MESSAGES: Final = 65_536
#: The same for a subscription that belongs to a group. Too small: a member idles while messages are on the way; too large:
#: messages wait for one member while others idle.
GROUP_QUEUE_MESSAGES: Final = 1024
SUBSCRIPTION_QUEUE_BYTES: Final = 64 * 1024 * 1024

#: Concurrent tunnels of one registration. With full windows of 1 MiB they hold a quarter of a gigabyte.
TUNNELS: Final = 256
#: Bytes that the sender of a tunnel may have in transit before the receiving application takes any. Too small: the sender waits
#: for credit on long paths (1 MiB fills 80 Mbit/s across an ocean); too large: memory for each tunnel with a slow reader.
TUNNEL_WINDOW_BYTES: Final = 1024 * 1024
#: Smallest window; with less, frames that give credit would cost more than the data.
WINDOW_BYTES_MIN: Final = 4096
#: Largest window a peer may claim, so that sums stay small.
WINDOW_BYTES_MAX: Final = 1024 * 1024 * 1024
