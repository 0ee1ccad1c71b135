"""`iris clusters`: its options."""

from typing import Annotated, Literal

import typer

from iris_py.cli.options import AskTimeout, Every, Interval, Json, Limit, Sample
from iris_py.cli.outcome import end_of_help, execute
from iris_py.cli.settings import Settings, with_settings
from iris_py.defaults import ASK_TIMEOUT_S, NODES_SAMPLED

app = typer.Typer()


@app.command(epilog=end_of_help("iris clusters", "iris clusters --sort queued --json"))
@with_settings
def clusters(
    settings: Settings,
    sort: Annotated[
        Literal["name", "members", "requests_per_s", "failed_per_s", "errors_per_s", "running", "queued", "rejected"],
        typer.Option(metavar="FIELD", help="Sort by this field, largest first."),
    ] = "name",
    interval: Interval = 1.0,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    limit: Limit = 200,
    timeout: AskTimeout = ASK_TIMEOUT_S,
    json: Json = False,
) -> int:
    """List the clusters of the network, with members, rates, queues and handler times.

    Nodes are queried twice, and rates refer to the time between. In a network of more than 256 nodes a sample is queried, and
    the numbers are estimates. A cluster with its own secret appears as # and an id, unless this command holds that secret.
    """
    from iris_py.cli import lists
    from iris_py.cli.network import QueryOptions

    return execute(
        lambda: lists.clusters(
            settings,
            sort=sort,
            query=QueryOptions(is_every=every, sample=sample, interval_s=interval, timeout_s=timeout),
            limit=limit,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
