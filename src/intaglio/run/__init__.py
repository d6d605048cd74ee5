"""What runs: C compilers, the built library in this process, and comparison with reference runtimes."""
