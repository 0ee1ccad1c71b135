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
        typer.Option(metavar="FIELD", help="The order, the largest first."),
    ] = "name",
    interval: Interval = 1.0,
    every: Every = False,
    sample: Sample = NODES_SAMPLED,
    limit: Limit = 200,
    timeout: AskTimeout = ASK_TIMEOUT_S,
    json: Json = False,
) -> int:
    """List the clusters of the network, with members, rates, queues and how long handlers take.

    Nodes are asked twice, and rates are of the time between. Up to 256 nodes are all asked, of more a sample: then numbers are
    estimates. A cluster with a secret of its own is a # and an id unless this command holds that secret.
    """
    from iris_py.cli import lists

    return execute(
        lambda: lists.clusters(
            settings,
            sort=sort,
            is_every=every,
            sample=sample,
            limit=limit,
            interval_s=interval,
            timeout_s=timeout,
            as_json=json,
        ),
        verbosity=settings.verbose,
        options=settings.options,
        is_short=True,
    )
