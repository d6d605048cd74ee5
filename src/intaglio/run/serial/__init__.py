"""A package's firmware on a real board, over its serial line.

    protocol   frames and requests, as `src/NAME_serial.c` of a package answers them
    line       a port, and one request after the other over it: noise, silence, retries
    device     a package behind a line, called like `host.Library`
    measure    cycles per layer, for `profile`
    runs       figures of boards, kept in a file for the report
"""
