from intaglio.targets.target import Target, all_targets, find_target, host_target

__all__ = ["Target", "all_targets", "find_target", "host_target"]
