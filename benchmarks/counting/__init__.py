"""Instructions of a message, counted by valgrind, in two states of the repository: what new code costs that every message runs.

Times differ by a tenth from run to run on a shared machine, and the number of instructions hardly at all. Two nodes talk over a
virtual network, so that the system, the clock and the order of things are the same in each run, and each number is the
difference of two runs of different length: starting and joining are in both.
"""
