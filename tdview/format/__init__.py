"""What the bytes of a saved tensordict mean: names, entries, dtypes, sizes and versions.

This package knows the format as the specification tells it. It does not know where bytes are: it opens no
file and imports nothing but the standard library.
"""
