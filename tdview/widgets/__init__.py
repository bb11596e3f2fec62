"""The notebook widget: the only layer that knows Jupyter."""
