"""Iris beside other messaging systems: ``python -m benchmarks.peers``, or ``make bench``.

Each system is one small module of :mod:`benchmarks.peers.systems` with the interface of :mod:`benchmarks.peers.system`: how
its ordinary Python client publishes, subscribes, asks and so on. Everything else is the same for all: the processes and what
they do (:mod:`~benchmarks.peers.roles`), how that is measured (:mod:`~benchmarks.peers.measure`), what is measured
(:mod:`~benchmarks.peers.workloads`) and in which order (:mod:`~benchmarks.peers.run`).
"""
