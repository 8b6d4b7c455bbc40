"""What makes the groups: the threads of this process, or the tasks of a Ray cluster. One protocol, `engine.Engine`.

A new engine implements it in a module here, and is chosen by its name in `choice`.
"""
