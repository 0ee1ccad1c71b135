"""The commands of `iris` and their options. What they do is imported when they do it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

import typer

from iris_py.cli.outcome import EXIT_CODES_HELP, ExitCode, complain, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import ROTATION_TIMEOUT_S

if TYPE_CHECKING:
    from iris_py.api.rekeying import RotationStep

__all__ = ["run"]

# Click's class for every mistake on a command line. It has no fixed address: recent typers bring a copy of click of their own.
_UsageError: Final = cast("type[Exception]", typer.BadParameter.__bases__[0])

app = typer.Typer(
    name="iris",
    help="Send requests and broadcasts to clusters by name: no broker, no addresses, always encrypted.",
    epilog=EXIT_CODES_HELP,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
keys = typer.Typer(
    help="Make secrets, rotate them in files or in a running network, and find your own.", epilog=EXIT_CODES_HELP
)
app.add_typer(keys, name="keys")

Cluster = Annotated[str, typer.Argument(metavar="NAME", help="Name of the cluster.", show_default=False)]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="What to send; - reads it from standard input.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]
Header = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A header to send beside it; repeatable.", show_default=False),
]


def run(arguments: Sequence[str]) -> int:
    """Run the command line.

    Args:
        arguments: All but the program's name.

    Returns:
        The exit code.
    """
    try:
        outcome = app(arguments, standalone_mode=False, prog_name="iris")
        return outcome if isinstance(outcome, int) else ExitCode.OK
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except _UsageError as exc:
        return _explain_usage(exc)


def _explain_usage(error: BaseException) -> int:
    """Say in one line what is wrong with the command line, and where to read more."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "iris"
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    complain(f"{text.rstrip('.')}. See `{path} --help`.")
    return ExitCode.USAGE


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from iris_py.cli.versions import print_version

        print_version()
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, metavar="", help="Print the version.")
    ] = False,
) -> None:
    _show_help_without_command(context)


@keys.callback(invoke_without_command=True)
def _keys(context: typer.Context) -> None:
    _show_help_without_command(context)


def _show_help_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")
        raise typer.Exit(ExitCode.USAGE)


@app.command(epilog=EXIT_CODES_HELP)
@with_settings
def node(settings: Settings, json: Json = False) -> int:
    """Run a node until it is told to stop: others find the network through it."""
    from iris_py.cli import serving

    return execute(lambda: serving.node(settings, as_json=json), verbosity=settings.verbose, options=settings.options)


@app.command(epilog=EXIT_CODES_HELP)
@with_settings
def join(
    settings: Settings,
    name: Cluster,
    exec_: Annotated[
        str,
        typer.Option("--exec", metavar="COMMAND", help="Run for each request: its input is the request, its output the reply."),
    ],
    shell: Annotated[bool, typer.Option("--shell", metavar="", help="Give the command to the shell.")] = False,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=1024, metavar="N", help="Commands at a time; the number of processors by default.")
    ] = None,
    weight: Annotated[
        float, typer.Option(min=0.01, max=100.0, metavar="W", help="How much of the load to get beside other members.")
    ] = 1.0,
    json: Json = False,
) -> int:
    """Take part in a cluster: answer its requests with a command.

    A failing command fails the request; the caller sees its exit status and the end of its standard error.

    Broadcasts run the command too, and what it prints appears here.
    """
    from iris_py.cli import serving

    return execute(
        lambda: serving.join(settings, name, exec_, use_shell=shell, concurrency=concurrency, weight=weight, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
    )


@app.command(epilog=EXIT_CODES_HELP)
@with_settings
def request(
    settings: Settings,
    name: Cluster,
    text: Text,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for the reply.")] = 5.0,
    idempotent: Annotated[
        bool,
        typer.Option(
            "--idempotent",
            metavar="",
            help="Executing it twice is harmless: try other members, wait for one.",
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="With --idempotent: a member replies again to a key that it has executed."),
    ] = None,
    prefer: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Ask members near this zone first; near the own one by default.")
    ] = None,
    require: Annotated[str | None, typer.Option(metavar="ZONE", help="Ask nobody outside this zone.")] = None,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", metavar="", help="With --idempotent: ask another member when the handler of one fails."),
    ] = False,
    on_full: Annotated[
        Literal["wait", "raise"],
        typer.Option(help="When all members are full: wait for a place within the timeout, or fail at once."),
    ] = "wait",
    header: Header = None,
    json: Json = False,
) -> int:
    """Ask one member of a cluster, and print its reply."""
    from iris_py.cli import calling

    return execute(
        lambda: calling.request(
            settings,
            name,
            text,
            timeout_s=timeout,
            is_idempotent=idempotent,
            key=key,
            prefer=prefer,
            require=require,
            retry_failed=retry_failed,
            on_full=on_full,
            header=header,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )


@app.command(epilog=EXIT_CODES_HELP)
@with_settings
def broadcast(settings: Settings, name: Cluster, text: Text, header: Header = None, json: Json = False) -> int:
    """Send a message to every member of a cluster."""
    from iris_py.cli import calling

    return execute(
        lambda: calling.broadcast(settings, name, text, header=header, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )


@app.command(epilog=EXIT_CODES_HELP)
@with_settings
def survey(
    settings: Settings,
    name: Cluster,
    text: Text,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for replies.")] = 1.0,
    stop_after: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Replies that are enough; all by default.", show_default=False)
    ] = None,
    header: Header = None,
    json: Json = False,
) -> int:
    """Ask every member of a cluster, and print what each replies, as it comes.

    Standard error says who did not answer. Exit code 4 if nobody did in time, or fewer than --stop-after.
    """
    from iris_py.cli import calling

    return execute(
        lambda: calling.survey(settings, name, text, timeout_s=timeout, stop_after=stop_after, header=header, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )


@app.command(epilog=EXIT_CODES_HELP)
@with_settings
def tunnel(
    settings: Settings,
    name: Cluster,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long opening may take.")] = 5.0,
    header: Header = None,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Say in JSON, on standard error, what has passed.")] = False,
) -> int:
    """Pipe standard input, of any size, through one member, and print what comes back, as it comes.

    A member that was started with `iris join --exec` runs its command in between.
    """
    from iris_py.cli import tunnelling

    return execute(
        lambda: tunnelling.tunnel(settings, name, timeout_s=timeout, header=header, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )


@app.command(epilog=EXIT_CODES_HELP)
@with_settings
def publish(
    settings: Settings,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Tokens with dots between them.", show_default=False)],
    text: Text,
    header: Header = None,
    json: Json = False,
) -> int:
    """Send a message to every subscriber of a topic."""
    from iris_py.cli import topics

    return execute(
        lambda: topics.publish(settings, topic, text, header=header, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )


@app.command(epilog=EXIT_CODES_HELP)
@with_settings
def subscribe(
    settings: Settings,
    pattern: Annotated[
        str,
        typer.Argument(metavar="PATTERN", help="A topic; * is any token, > at the end all further ones.", show_default=False),
    ],
    json: Json = False,
) -> int:
    """Print what is published to a topic until it is told to stop, each message in a line.

    A line has the topic and the text, at most 2,000 characters of it.

    With --json nothing is shortened or made harmless.
    """
    from iris_py.cli import topics

    return execute(
        lambda: topics.subscribe(settings, pattern, as_json=json), verbosity=settings.verbose, options=settings.options
    )


@app.command(epilog=EXIT_CODES_HELP)
@with_settings
def members(
    settings: Settings,
    name: Annotated[str | None, typer.Argument(help="Name of the cluster.", show_default=False)] = None,
    json: Json = False,
) -> int:
    """List the members of a cluster, or without a name the nodes of the network.

    A node sees up to 32 members of a cluster, and of a large network a part. What is missing is said on standard error.
    """
    from iris_py.cli import calling

    return execute(
        lambda: calling.members(settings, name, as_json=json),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )


@app.command(epilog="Exit code 0 only if the totals are equal.")
def demo(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="DIR", help="Count this directory, in place of Python's own source.", show_default=False
        ),
    ] = None,
    member_count: Annotated[int, typer.Option("--members", min=1, max=64, metavar="N", help="Member processes.")] = 3,
    no_kill: Annotated[bool, typer.Option("--no-kill", metavar="", help="Kill nobody half-way.")] = False,
    spark: Annotated[
        bool,
        typer.Option("--spark", metavar="", help="Let a Spark application dispatch the work, and kill an executor too."),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1.0, metavar="SECONDS", help="With --spark: how long it may take; 300 by default.", show_default=False
        ),
    ] = None,
    json: Json = False,
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, metavar="", show_default=False, help="Show more.")] = 0,
) -> None:
    """Count a source tree with a cluster of processes, kill one of them half-way, and compare with a plain count.

    The demo has a network of its own and meets nobody else's.

    With --spark the files are read by tasks of Spark (local-cluster[2,1,1024], which takes 45 s on two processors).
    """
    if spark:
        from iris_py.cli.demo.spark import demo_spark

        raise typer.Exit(
            execute(
                lambda: demo_spark(
                    directory, member_count=member_count, is_kill=not no_kill, as_json=json, timeout_s=timeout or 300.0
                ),
                verbosity=verbose,
            )
        )
    if timeout is not None:
        raise typer.BadParameter("it is for --spark", param_hint="'--timeout'")
    from iris_py.cli.demo import command as job

    raise typer.Exit(
        execute(
            lambda: job.demo(directory, member_count=member_count, is_kill=not no_kill, as_json=json),
            verbosity=verbose,
        )
    )


@app.command(epilog="Exit codes: 0 all checks hold; 1 one failed; 2 wrong usage; 130 interrupted, with what was measured.")
def simulate(
    nodes: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Nodes; 1000 by default, 50 of layer full.", show_default=False)
    ] = None,
    layer: Annotated[
        str,
        typer.Option(metavar="LAYER", help="ring: routing alone; groups: groups on a perfect ring; full: whole overlays."),
    ] = "ring",
    churn: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Part of the nodes that is replaced per hour.", show_default=False),
    ] = None,
    session_s: Annotated[
        float | None,
        typer.Option(metavar="MEAN", help="The same as the mean time that a node stays.", show_default=False),
    ] = None,
    minutes: Annotated[float, typer.Option(metavar="M", help="How long nodes come and go, in virtual time.")] = 10.0,
    partition: Annotated[
        str | None,
        typer.Option(metavar="PART:SECONDS", help="Cut off a part for a while: 0.5:600.", show_default=False),
    ] = None,
    kill: Annotated[float, typer.Option(metavar="PART", help="Kill a part at once, half of them without a sign.")] = 0.0,
    lookups: Annotated[int, typer.Option(metavar="N", help="Messages to random keys.")] = 10_000,
    loss: Annotated[float, typer.Option(metavar="PART", help="Datagrams, and segments below links, that are lost.")] = 0.0,
    zones: Annotated[int, typer.Option(metavar="N", help="Zones that the nodes are in; 0 spreads them evenly.")] = 0,
    detectors: Annotated[
        bool | None,
        typer.Option(
            "--detectors/--no-detectors",
            help="Run real failure detectors or model them; real up to 2,000 nodes.",
            show_default=False,
        ),
    ] = None,
    members: Annotated[int, typer.Option(metavar="N", help="Members of a cluster (groups).")] = 1000,
    subscribers: Annotated[int, typer.Option(metavar="N", help="Subscribers of a topic (groups).")] = 1000,
    requesters: Annotated[int, typer.Option(metavar="N", help="Requesters of the cluster (groups).")] = 100,
    seed: Annotated[int, typer.Option(metavar="S", help="Everything random follows from it.")] = 1,
    suite: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Many simulations side by side: standard, million, huge.", show_default=False),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, metavar="N", help="Processes for a suite.", show_default=False)
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write all that was measured; - prints it.", show_default=False),
    ] = None,
    plots: Annotated[Path | None, typer.Option(metavar="DIR", help="Plot into a folder.", show_default=False)] = None,
) -> None:
    """Simulate a network of many nodes, under a virtual clock, and check everything.

    The code is that of real nodes; only sockets and time are simulated.
    """
    from iris_py.cli.simulate import command as job

    raise typer.Exit(
        job.execute_simulation(
            lambda: job.make_plan(
                churn,
                partition,
                layer=layer,
                nodes=nodes,
                session_s=session_s,
                minutes=minutes,
                kill=kill,
                lookups=lookups,
                loss=loss,
                zones=zones,
                detectors=detectors,
                members=members,
                subscribers=subscribers,
                requesters=requesters,
                seed=seed,
            ),
            suite,
            json_file=json_file,
            plots=plots,
            workers=workers,
        )
    )


@app.command("version")
def version_(json: Json = False) -> None:
    """Print the versions of Iris, of Python and of the packages that Iris needs, as a report of a defect wants them."""
    from iris_py.cli.versions import print_versions

    print_versions(as_json=json)


@keys.command("new")
def keys_new(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Write a new private file in place of printing.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a network secret: one line, for every node as IRIS_SECRET or in a file named by IRIS_SECRET_FILE."""
    from iris_py.cli import keys as command

    raise typer.Exit(execute(lambda: command.new(output, as_json=json)))


@keys.command("path")
def keys_path(json: Json = False) -> None:
    """Print where your per-user secret is kept; it is made when first needed."""
    from iris_py.cli import keys as command

    raise typer.Exit(execute(lambda: command.path(as_json=json)))


@keys.command("administrator")
def keys_administrator(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write the key into a new private file.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Make an administration key, with which a secret is exchanged in a running network.

    It prints the key, or with -o writes it to a file, and prints the public half, which every node is given as
    IRIS_ADMINISTRATOR or administrator in its file.
    """
    from iris_py.cli import keys as command

    raise typer.Exit(execute(lambda: command.administrator(output, as_json=json)))


SecretFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="A secret file, as of IRIS_SECRET_FILE; else the running network.", show_default=False),
]
AdministrationKeyFile = Annotated[
    Path | None,
    typer.Option("--administration-key", metavar="PATH", help="Without FILE: who may do that.", show_default=False),
]
StepTimeout = Annotated[float, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="How long to wait for neighbours.")]
Force = Annotated[bool, typer.Option("--force", metavar="", help="Go on though neighbours are behind: they may be put out.")]


@keys.command("list", epilog=EXIT_CODES_HELP)
@with_settings
def keys_list(
    settings: Settings,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A secret file; else what a node here would use.", show_default=False),
    ] = None,
    running: Annotated[
        bool,
        typer.Option("--running", metavar="", help="Ask the running network, and its nodes near this one how far they are."),
    ] = False,
    json: Json = False,
) -> int:
    """Print the id of each generation of the secrets, and never a secret: the primary one seals, the others are accepted."""
    from iris_py.cli import keys as command

    if running and file is not None:
        raise typer.BadParameter("a file does not run: leave one of both out", param_hint="'--running'")
    if running:
        return execute(lambda: command.list_running(settings, as_json=json), verbosity=settings.verbose)
    return execute(lambda: command.list_generations(settings, file, as_json=json), verbosity=settings.verbose)


@keys.command("add", epilog=EXIT_CODES_HELP)
@with_settings
def keys_add(
    settings: Settings,
    file: SecretFile = None,
    administration_key: AdministrationKeyFile = None,
    timeout: StepTimeout = ROTATION_TIMEOUT_S,
    json: Json = False,
) -> int:
    """Begin a rotation: make a new generation, which is accepted and does not seal yet; in a file or in the running network."""
    return _take_step(settings, "add", file, administration_key, timeout, force=False, as_json=json)


@keys.command("rotate", epilog=EXIT_CODES_HELP)
@with_settings
def keys_rotate(
    settings: Settings,
    file: SecretFile = None,
    administration_key: AdministrationKeyFile = None,
    timeout: StepTimeout = ROTATION_TIMEOUT_S,
    force: Force = False,
    json: Json = False,
) -> int:
    """Go on with it, when every node has taken that: the newest generation seals, the others are accepted."""
    return _take_step(settings, "rotate", file, administration_key, timeout, force=force, as_json=json)


@keys.command("retire", epilog=EXIT_CODES_HELP)
@with_settings
def keys_retire(
    settings: Settings,
    file: SecretFile = None,
    administration_key: AdministrationKeyFile = None,
    timeout: StepTimeout = ROTATION_TIMEOUT_S,
    force: Force = False,
    json: Json = False,
) -> int:
    """End it, when every node has taken that: only the primary generation stays. Who does not have it is put out."""
    return _take_step(settings, "retire", file, administration_key, timeout, force=force, as_json=json)


def _take_step(
    settings: Settings,
    step: "RotationStep",
    file: Path | None,
    key_file: Path | None,
    timeout_s: float,
    *,
    force: bool,
    as_json: bool,
) -> int:
    from iris_py.cli import keys as command

    if file is not None and key_file is not None:
        raise typer.BadParameter("it is for the running network: leave it or FILE out", param_hint="'--administration-key'")
    if file is not None:
        return execute(lambda: command.take_step(step, file, as_json=as_json), verbosity=settings.verbose)
    if key_file is None:
        raise typer.BadParameter("give FILE, or --administration-key for the running network", param_hint="'FILE'")
    return execute(
        lambda: command.take_running_step(settings, step, key_file, timeout_s=timeout_s, force=force, as_json=as_json),
        verbosity=settings.verbose,
    )
