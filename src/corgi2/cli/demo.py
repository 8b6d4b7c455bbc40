"""``corgi2 demo``"""

import click

from corgi2.cli.root import cli


@cli.command()
@click.argument("folder", default=".demo")
def demo(folder: str) -> None:
    """See it work, in less than a minute, on handwritten digits that are sorted by class in small shards.

    Measures how badly they are mixed, plans, shuffles offline, verifies, and trains the same network from the shards as
    they are, a sliding window, CorgiPile, Corgi² and a full shuffle. FOLDER gets the shards and a report.
    """
    from corgi2.demo import run

    run(folder)
