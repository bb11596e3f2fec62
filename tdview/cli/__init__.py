"""The command line: argparse, one call of the layers below a verb, text or JSON.

Exit codes: 0 sound or done, 1 problems or differences found, 2 could not run, 130 stopped by Ctrl-C.
"""
