"""Memory: who lives where, proven not to overlap."""

from intaglio.memory.place import place

__all__ = ["place"]
