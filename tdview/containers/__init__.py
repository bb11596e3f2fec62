"""What users hold: tensordicts, stacks, non-tensor data, tensorclasses and memory-mapped tensors.

The only layer that needs torch. It is small on purpose: what the format can hold and what a user of saved data
asks of it, under the names of tensordict.
"""
