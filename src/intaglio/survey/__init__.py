"""A model on cores and boards: what it needs there, as built or as planned, and what would make it fit."""
