"""``corgi2 cache``"""

import json

import click

from corgi2.cli.options import json_option
from corgi2.cli.root import cli


@cli.command()
@click.argument("path")
@click.option("--clear", is_flag=True, help="Remove all that no running process uses.")
@json_option
def cache(path: str, clear: bool, as_json: bool) -> None:
    """Show what lies in PATH, the cache_dir of a loader.

    A loader with a cache keeps what it reads from an object store on the node's disk, for later epochs.
    """
    from corgi2.caching import cache

    found = cache(path, clear=clear)
    click.echo(json.dumps(found.as_json(), indent=2) if as_json else found.as_text())
