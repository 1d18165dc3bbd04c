"""How fast is decoding beside other systems with the same weights, in one run?

The parts are imported from their modules: the load test of a server must not import torch.
"""
