"""The attack on the offline half: ``python -m benchmarks.chaos --trials 1000``.

A trial makes a small random data set, shuffles it by real processes, and disturbs them: kills one, two or three runs at
once, stops some and has them go on, lets the disk fail, kills the S3 server, a node of the Ray cluster, or the driver.
The same command is given again until it ends well. Then every promise is checked: exit codes and words of every run,
the bytes of an undisturbed run, no record lost or repeated whenever all is quiet, nothing left over.

Trial N of a seed is always the same data set, with the same disturbances at the same moments, as far as a machine keeps
time; ``--only N`` repeats it.
"""
