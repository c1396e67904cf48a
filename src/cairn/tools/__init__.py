"""The tools room: what a tool is, how its arguments are read, how it runs, what it returns.

Everything that can go wrong with a tool (a bad declaration, arguments that do not fit, a result
nobody can write down, a function that never ends) is met here, each in a file of its own.
"""
