"""Benchmarks of decoding speed against other systems with the same weights, and load tests of a server.

Import from the modules: the load test must not import torch.
"""
