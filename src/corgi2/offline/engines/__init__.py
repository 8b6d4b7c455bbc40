"""Who makes the groups: threads of this process, or the tasks of a Ray cluster."""
