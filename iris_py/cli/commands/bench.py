"""`iris bench`: its commands and their options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from iris_py.cli.options import Json, OutputFile, make_group
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings

#: Bounds of `iris_py.cli.bench.plan`, which says why; help is shown without it, and a test compares.
CONCURRENCY_MAX = 65_536
PROCESSES_MAX = 64
RATE_MAX = 10_000_000.0
SECONDS_MAX = 86_400.0

Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="NAME",
        help="Load this cluster in the network of the settings, in place of a private one: who uses it waits meanwhile.",
        show_default=False,
    ),
]
AgainstTopic = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="TOPIC",
        help="Publish to this topic in the network of the settings, in place of a private one.",
        show_default=False,
    ),
]
Input = Annotated[
    Path | None,
    typer.Option("--input", metavar="FILE", help="Send what is in a file, in place of --size bytes.", show_default=False),
]
Members = Annotated[
    int | None,
    typer.Option(min=1, max=PROCESSES_MAX, metavar="N", help="Member processes of the private network; 1 by default."),
]
Processes = Annotated[
    int,
    typer.Option("--processes", min=1, max=PROCESSES_MAX, metavar="N", help="Processes that make the load."),
]
Rate = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=RATE_MAX,
        metavar="N",
        help="Begin N per second in a fixed rhythm, whoever is slow, and count from when each was to begin; by default each "
        "begins when an earlier one has ended.",
        show_default=False,
    ),
]
Seconds = Annotated[float, typer.Option(min=0.05, max=SECONDS_MAX, metavar="N", help="How long to measure, after the warm-up.")]
Timeout = Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long each may take.")]
WarmUp = Annotated[
    float, typer.Option("--warm-up", min=0.0, max=SECONDS_MAX, metavar="SECONDS", help="How long before anything counts.")
]

app = make_group("bench", "Measure how fast requests, topics, tunnels and joins are: here, or in a network that runs.")


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
        str | None, typer.Option(metavar="SIZE", help="Bytes of a reply; by default the request itself.", show_default=False)
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=CONCURRENCY_MAX,
            metavar="N",
            help="Requests under way at once, of all processes: 64 by default, with --rate at most 1024.",
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
    """Measure requests: how many go through, how long each takes, and the processor time of both sides.

    By default members run on this machine, in a private network that nobody else reaches, and end with the command.
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
            help="What a subscriber does when it is full: let publishers wait, the default, or drop.",
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
    """Measure topics: how many messages are published and delivered, how late, and how many are dropped or lost.

    By default subscribers run on this machine, in a private network that nobody else reaches, and end with the command.
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
        int, typer.Option("--tunnels", "--concurrency", min=1, max=CONCURRENCY_MAX, metavar="N", help="Tunnels at once.")
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
    """Measure tunnels: how many bytes a second go through, and how often a sender has to wait for who receives.

    By default members run on this machine, in a private network that nobody else reaches, and end with the command.
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
        typer.Option(min=1, max=CONCURRENCY_MAX, metavar="N", help="Nodes at a time; 1 by default.", show_default=False),
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
    """Measure how long a node takes from `connect()` until its first request is answered, again and again.

    The start of Python itself is not part of it. By default members run on this machine, in a private network that nobody else
    reaches, and end with the command.
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
