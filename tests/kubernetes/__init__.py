"""`make kubernetes-test`: a real cluster on this machine, and the tests of the engine `kubernetes` on it.

build.py makes the programs, cluster.py the cluster, __main__.py runs all of it and cleans up.
"""
