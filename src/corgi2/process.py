"""Who is running: this machine's name, and whether one of its processes still lives."""

import os
import socket

HOST = socket.gethostname()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, and is somebody else's
        return True
    return True
