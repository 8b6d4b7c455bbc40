"""Memory as a file without a name, which goes with the last process that holds it, however that ends."""

import os
import sys
import tempfile


def unnamed_file() -> int:
    """The descriptor of a new one, which is not in /dev/shm."""
    if sys.platform == "linux":
        file = os.memfd_create("corgi2")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    return file
