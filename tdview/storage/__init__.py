"""Where the bytes of a save lie: a directory, an archive, or memory.

This package knows files, maps and zip entries. It does not know tensordicts, and needs only the standard library.
"""
