"""What runs on the far side: one small supervisor, told everything on its standard input.

These modules import nothing but the standard library. They are started by path, without the rest
of the package, so that a call costs one bare interpreter.
"""
