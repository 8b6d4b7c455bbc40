"""``corgi2 demo``: measure, plan, shuffle, verify and train, on handwritten digits that lie class by class.

It uses what users use, and nothing uses it. `tour` is the command, `digits` the data, `model` and `race` the training,
`report` the page.
"""

from corgi2.demo.tour import run

__all__ = ["run"]
