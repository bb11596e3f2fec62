"""The lazy tree over a store: nodes, leaves and values of a saved tensordict.

This package knows which node a level is and how a payload becomes an array. It changes nothing on disk, and
imports numpy, torch, pandas and matplotlib only in the call that needs them.
"""
