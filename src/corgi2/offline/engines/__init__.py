"""What makes the groups: the threads of this process, or the tasks of a Ray cluster. One protocol, `engine.Engine`.

A new engine implements it in a module here, and is chosen by its name in `choice`; its name is also a
value of ``engine`` in `offline.run` and of ``--engine`` in `cli.shuffle`.
"""
