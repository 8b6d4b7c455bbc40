"""``corgi2`` on a disk that fails: ``python -m benchmarks.chaos.failing COUNTS NUMBER MOMENT shuffle SRC DST …``.

From its MOMENTth call of the operating system on, the disk is full (NUMBER is ENOSPC), or that one call fails (EIO).
How many calls there were is written to the file COUNTS, and which one failed. A moment that never comes just counts.
"""

import atexit
import sys
from pathlib import Path

from benchmarks.chaos.strikes import Failing, striking
from corgi2.cli.program import main

if __name__ == "__main__":
    counts, number, moment = sys.argv[1:4]
    fault = Failing(int(number), int(moment))
    atexit.register(lambda: Path(counts).write_text(f"{next(fault.calls)} {fault.struck}"))
    sys.argv[1:] = sys.argv[4:]
    with striking(fault):
        main()
