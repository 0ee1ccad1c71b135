"""Benchmarks of Iris beside its peers: ``python -m benchmarks``.

Everything runs on loopback, each contender in processes and in a network of its own, and all contenders take turns (A B C
A B C ...), so a noisy minute meets all of them. A ratio compares two contenders within one turn; the median of these ratios
says more than the ratio of two medians.
"""
