"""``corgi2 verify``"""

import json
from typing import Any

import click

from corgi2.cli.options import SRC_HELP, buffer_option, dst_option, json_option, src_option
from corgi2.cli.problem import NO
from corgi2.cli.root import cli


@cli.command(epilog=SRC_HELP)
@click.argument("src")
@click.argument("dst", required=False)
@click.argument("val", required=False)
@click.option("--quick", is_flag=True, help="Without DST: compare sizes, times and sums, and read no shard.")
@buffer_option
@src_option
@dst_option
@json_option
def verify(
    src: str,
    dst: str | None,
    val: str | None,
    quick: bool,
    buffer: int | None,
    src_options: tuple[tuple[str, str], ...],
    dst_options: tuple[tuple[str, str], ...],
    as_json: bool,
) -> int:
    """Prove that DST holds exactly the records of SRC, in whatever order, by count and sum of 128-bit hashes.

    Reads both once, in constant memory. If they differ, it says how many records are missing or extra and where
    examples lie, and the exit code is 1.

    With VAL, which was held out of SRC: prove that DST and VAL together hold exactly the records of SRC.

    With one folder, which corgi2 has shuffled: prove that every byte of it is what the shuffle wrote, and that the
    shuffle wrote every record that it read exactly once. After --in-place that is the way.
    """
    from corgi2.proof import verify as compare

    options = dict(src_options), dict(dst_options)
    places: Any = {"src": src, "dst": dst, "holdout": val}
    verdict: Any = compare(**places, quick=quick, buffer=buffer, src_options=options[0], dst_options=options[1])
    click.echo(json.dumps(verdict.as_json(), indent=2) if as_json else verdict.as_text())
    return 0 if verdict.same else NO
