"""OpenCL drivers of this machine, and the file that keeps what they compiled.

    loader          which library to call, with which environment: the system's, or the one that comes by pip
    query           a program of its own: asks every driver what it is. A driver that crashes takes only that process down
    answers         what `query` says, as values
    devices         the devices there are, and the one that is meant
    application     the application of a package, in a process of its own: fills NAME.clbin, tunes
    cache_file      NAME.clbin: program binaries for several devices and drivers (docs/reference/program-cache.md)
    cache_store     such a file on disk: lock, atomic replacement, who may write to it
    cache_contents  which records count; merge, prune
    library         the built library of a package, called in this process
    matching        field by field: would this device use this entry?
"""
