"""The command line: parses words, calls the library, prints. Data to stdout, everything else to stderr."""
