"""`iris bench`: its commands and their options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from iris_py.cli.options import Json, OutputFile, make_group
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

#: Bounds of `iris_py.cli.bench.plan`, which has the reasons. Help is shown without importing that module, and a test compares
#: the values.
CONCURRENCY_MAX = 65_536
PROCESSES_MAX = 64
RATE_MAX = 10_000_000.0
SECONDS_MAX = 86_400.0

Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="NAME",
        help="Load this cluster of your network instead of a private one. Its other callers are slowed down meanwhile.",
        show_default=False,
    ),
]
AgainstTopic = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="TOPIC",
        help="Publish to this topic of your network instead of a private one.",
        show_default=False,
    ),
]
Input = Annotated[
    Path | None,
    typer.Option("--input", metavar="FILE", help="Send the content of a file instead of --size bytes.", show_default=False),
]
Members = Annotated[
    int | None,
    typer.Option(min=1, max=PROCESSES_MAX, metavar="N", help="Member processes of the private network; 1 by default."),
]
Processes = Annotated[
    int,
    typer.Option("--processes", min=1, max=PROCESSES_MAX, metavar="N", help="Number of processes that generate load."),
]
Rate = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=RATE_MAX,
        metavar="N",
        help="Start N per second at fixed times, independent of replies, and measure from these times; by default each "
        "starts when an earlier one has ended.",
        show_default=False,
    ),
]
Seconds = Annotated[
    float, typer.Option(min=0.05, max=SECONDS_MAX, metavar="N", help="Duration of the measurement, after the warm-up.")
]
Timeout = Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Timeout of each operation.")]
WarmUp = Annotated[
    float,
    typer.Option(
        "--warm-up", min=0.0, max=SECONDS_MAX, metavar="SECONDS", help="Duration of the warm-up, which is not measured."
    ),
]

app = make_group("bench", "Measure the speed of requests, topics, tunnels and joins, in a private or a running network.")


@app.command(
    "requests",
    epilog=end_of_help(
        "iris bench requests --size 1k",
        "iris bench requests --rate 2000 --seconds 30 --json",
        "iris bench requests --against upper",
    ),
)
@with_settings
def bench_requests(
    settings: Settings,
    against: Against = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes of a request, such as 100, 1k or 64KiB; 1k by default.", show_default=False),
    ] = None,
    input_: Input = None,
    reply: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes of a reply; by default the request is returned.", show_default=False),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=CONCURRENCY_MAX,
            metavar="N",
            help="Requests in flight, over all processes: 64 by default; with --rate at most 1024.",
            show_default=False,
        ),
    ] = None,
    processes: Processes = 1,
    members: Members = None,
    rate: Rate = None,
    seconds: Seconds = 5.0,
    warm_up: WarmUp = 0.5,
    timeout: Timeout = 5.0,
    output: OutputFile = None,
    json: Json = False,
) -> int:
    """Measure requests: throughput, latency, and processor time of both sides.

    By default members run on this machine, in a private network, and end with the command.
    """
    from iris_py.cli.bench import command

    return execute(
        lambda: command.bench_requests(
            settings,
            against=against,
            size=size,
            input_path=input_,
            reply=reply,
            concurrency=concurrency,
            members=members,
            processes=processes,
            rate=rate,
            seconds=seconds,
            warm_up_s=warm_up,
            timeout_s=timeout,
            path=output,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )


@app.command("topics", epilog=end_of_help("iris bench topics --subscribers 4", "iris bench topics --rate 10000 --size 100"))
@with_settings
def bench_topics(
    settings: Settings,
    against: AgainstTopic = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes of a message, at least 8, such as 1k, the default.", show_default=False),
    ] = None,
    policy: Annotated[
        Literal["block", "drop_oldest", "drop_newest"] | None,
        typer.Option(
            metavar="block|drop_oldest|drop_newest",
            help="Overflow policy of the subscribers: block, the default, lets publishers wait.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--publishers", "--processes", min=1, max=PROCESSES_MAX, metavar="N", help="Publisher processes.")
    ] = 1,
    subscribers: Annotated[
        int | None,
        typer.Option(min=1, max=PROCESSES_MAX, metavar="N", help="Subscriber processes of the private network; 1 by default."),
    ] = None,
    rate: Rate = None,
    seconds: Seconds = 5.0,
    warm_up: WarmUp = 0.5,
    output: OutputFile = None,
    json: Json = False,
) -> int:
    """Measure topics: messages published and delivered, their delay, and messages dropped or lost.

    By default subscribers run on this machine, in a private network, and end with the command.
    """
    from iris_py.cli.bench import command

    return execute(
        lambda: command.bench_topics(
            settings,
            against=against,
            size=size,
            policy=policy,
            subscribers=subscribers,
            processes=processes,
            rate=rate,
            seconds=seconds,
            warm_up_s=warm_up,
            timeout_s=5.0,
            path=output,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )


@app.command("tunnels", epilog=end_of_help("iris bench tunnels", "iris bench tunnels --tunnels 16 --size 256k"))
@with_settings
def bench_tunnels(
    settings: Settings,
    against: Against = None,
    size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes of a block; 64k by default.", show_default=False)
    ] = None,
    input_: Input = None,
    tunnels: Annotated[
        int,
        typer.Option(
            "--tunnels", "--concurrency", min=1, max=CONCURRENCY_MAX, metavar="N", help="Number of concurrent tunnels."
        ),
    ] = 1,
    processes: Processes = 1,
    members: Members = None,
    rate: Rate = None,
    seconds: Seconds = 5.0,
    warm_up: WarmUp = 0.5,
    timeout: Timeout = 5.0,
    output: OutputFile = None,
    json: Json = False,
) -> int:
    """Measure tunnels: bytes per second, and how often senders wait for the receiver.

    By default members run on this machine, in a private network, and end with the command.
    """
    from iris_py.cli.bench import command

    return execute(
        lambda: command.bench_tunnels(
            settings,
            against=against,
            size=size,
            input_path=input_,
            tunnels=tunnels,
            members=members,
            processes=processes,
            rate=rate,
            seconds=seconds,
            warm_up_s=warm_up,
            timeout_s=timeout,
            path=output,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )


@app.command("join", epilog=end_of_help("iris bench join --members 4", "iris bench join --concurrency 8 --seconds 30"))
@with_settings
def bench_join(
    settings: Settings,
    against: Against = None,
    size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes of the first request; 16 by default.", show_default=False)
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=CONCURRENCY_MAX,
            metavar="N",
            help="Number of nodes that join concurrently; 1 by default.",
            show_default=False,
        ),
    ] = None,
    processes: Processes = 1,
    members: Members = None,
    rate: Rate = None,
    seconds: Seconds = 5.0,
    warm_up: WarmUp = 0.5,
    timeout: Timeout = 5.0,
    output: OutputFile = None,
    json: Json = False,
) -> int:
    """Measure the time of a node from `connect()` until the reply to its first request, repeatedly.

    The time excludes the start of Python. By default members run on this machine, in a private network, and end with the
    command.
    """
    from iris_py.cli.bench import command

    return execute(
        lambda: command.bench_join(
            settings,
            against=against,
            size=size,
            concurrency=concurrency,
            members=members,
            processes=processes,
            rate=rate,
            seconds=seconds,
            warm_up_s=warm_up,
            timeout_s=timeout,
            path=output,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
