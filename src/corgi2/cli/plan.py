"""``corgi2 plan``"""

import json
from typing import Any

import click

from corgi2.cli.dashes import in_dashes
from corgi2.cli.options import (
    SRC_HELP,
    feature_option,
    html_option,
    json_option,
    label_option,
    number,
    sample_option,
    size,
    src_option,
)
from corgi2.cli.root import cli
from corgi2.cli.words import check_page, write_page


@cli.command("plan", epilog=SRC_HELP)
@click.argument("src", required=False)
@click.option("--buffer", type=size, help="Memory for the offline pass, per node.  [default: half of what may be used]")
@click.option("--online-buffer", type=size, default="2GB", show_default=True, help="Memory for the loader, per node.")
@click.option("--epochs", type=number, default=10, show_default=True, help="Epochs of training.")
@click.option("--nodes", type=number, default=1, show_default=True, help="Machines that shuffle, and that train.")
@label_option
@feature_option
@sample_option
@click.option("--h-d", "h_d", type=float, help="h_D, if it is known, instead of --label.  [default: the worst, b]")
@click.option("--records", type=number, help="Without SRC: the number of records.")
@click.option("--bytes", "bytes", type=size, help="Without SRC: the size of all shards.")
@click.option("--shards", type=number, help="Without SRC: the number of shards.")
@click.option("--prices", help="aws, gcs, azure, or a JSON file of your own.  [default: those of SRC's store]")
@click.option("--node-price", help="The price of a machine that shuffles: dollars per hour, or its type (m7i.4xlarge).")
@click.option(
    "--traffic-price", help="The price of reads: dollars per GB, or other-region, internet.  [default: 0, in a region]"
)
@click.option("--bandwidth", type=size, help="Bytes per second, per node.  [default: measured on SRC; else 500MB]")
@click.option("--latency", type=float, help="Milliseconds.  [default: measured on SRC; else 30]")
@html_option
@src_option
@json_option
def plan(
    src: str | None,
    html: str | None,
    src_options: tuple[tuple[str, str], ...],
    as_json: bool,
    **asked: Any,
) -> None:
    """Say what every way of shuffling SRC would cost and buy, and which one to choose. Touches nothing.

    \b
    h and H: how badly blocks, and the buffers of all nodes at one time, are mixed; about 1 is a full shuffle.
    / full:  H over that of a full shuffle, which is also the ratio of Theorem 2's leading terms.
    $:       requests, and a month of what is stored twice. time: of reading and writing alone.

    Without SRC it plans for a data set that is elsewhere, or does not exist yet:

    \b
      corgi2 plan --records 1.3e9 --bytes 27TB --shards 27000 --h-d 4e4 --buffer 64GB --online-buffer 4GB --nodes 8
    """
    from corgi2.advice import plan

    check_page(html)
    advice = plan(src, **asked, src_options=dict(src_options)).worded(in_dashes)
    click.echo(json.dumps(advice.as_json(), indent=2) if as_json else advice.as_text())
    if html:
        write_page(html, advice.as_page())
