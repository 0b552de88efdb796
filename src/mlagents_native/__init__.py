"""The native library: C++ for what NumPy and PyTorch compute too slowly.

The library is optional. The readable form of every computation is in Python, in the package that
uses it, and serves as the reference and as the fallback. `library` finds and checks the library;
`source` holds the C++ code, one file for each part.
"""
