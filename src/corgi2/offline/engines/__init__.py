"""Who makes the groups: the threads of this process, or the tasks of a Ray cluster. One protocol, `engine.Engine`."""
