"""`iris topics`: its options."""

from typing import Annotated, Literal

import typer

from iris_py.cli.options import AskTimeout, Every, Interval, Json, Limit, Sample
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import ASK_TIMEOUT_S, NODES_SAMPLED

app = typer.Typer()


@app.command(epilog=end_of_help("iris topics", "iris topics 'news.>' --json"))
@with_settings
def topics(
    settings: Settings,
    pattern: Annotated[
        str | None,
        typer.Argument(metavar="PATTERN", help="Only subscriptions that overlap with this pattern.", show_default=False),
    ] = None,
    sort: Annotated[
        Literal["pattern", "subscriptions", "delivered_per_s", "dropped", "queued", "oldest_s"],
        typer.Option(metavar="FIELD", help="Sort by this field, largest first."),
    ] = "pattern",
    interval: Interval = 1.0,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    limit: Limit = 200,
    timeout: AskTimeout = ASK_TIMEOUT_S,
    json: Json = False,
) -> int:
    """List the subscribed patterns, with the deliveries, drops and queues of their subscriptions.

    The groups follow in a table of their own: members, messages given, taken, outstanding and lost, and how often no member had
    room. The last two lines are the first tokens of topics, with published, received and missed messages; and the table of the
    network's subscriptions, with its size, its root, and publications that do not arrive.

    Nodes are queried twice, and rates refer to the time between. In a network of more than 256 nodes a sample is queried, and
    the numbers are estimates.
    """
    from iris_py.cli import lists
    from iris_py.cli.network import QueryOptions

    return execute(
        lambda: lists.topics(
            settings,
            pattern,
            sort=sort,
            query=QueryOptions(is_every=every, sample=sample, interval_s=interval, timeout_s=timeout),
            limit=limit,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
