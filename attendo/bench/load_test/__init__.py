"""Load tests of a server: throughput, latency and rejections as clients see them. Does not import torch."""
