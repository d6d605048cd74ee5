"""Memory: who lives where, proven not to overlap."""

from intaglio.memory.place import place, placed

__all__ = ["place", "placed"]
