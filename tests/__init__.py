import os

from hypothesis import settings

# Machines are noisy: how long an example takes says nothing about its law. CI tries the same examples every time, so
# that it says something about the change; everybody else tries new ones.
settings.register_profile("corgi2", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("corgi2")
