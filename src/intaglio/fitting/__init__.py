"""Fitting a program to its device: the plan of its memory, the ladder of rungs under a limit, and the message when it does not fit.

plan        the memory stage as a whole
budget      the ladder: rungs in order, until the arena is small enough
squeeze     stripes: which layers are made a few rows at a time
weights     where constants lie in their blocks
fit         needs of a planned program, before anything is built
limits      needs against what the device has
"""
