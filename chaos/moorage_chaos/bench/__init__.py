"""The figures of the design, measured: ours and Node's, in turn, with one client, on one machine.

Here live the load client, the processes under load, the arithmetic from samples to rows, and the files that
``make bench`` writes. Not here: anything that judges a promise (checkers), and any fault.
"""
