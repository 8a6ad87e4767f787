"""The network door: connections to named hosts through a proxy on the host. The sandbox itself has no network.

program in the sandbox → 127.0.0.1:3128 in the sandbox → relay (`relay.c`, in the init) → link → Door on the host
"""
