"""Runs the models of a batch from one library, in a process of its own: under sanitizers, and it may crash.

python execute.py FOLDER      FOLDER/batch.pickle: names, manifests and inputs; writes FOLDER/results.pickle
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from intaglio.package.manifest import Manifest
from intaglio.run.host import Library, ordered_inputs


def main() -> None:
    folder = Path(sys.argv[1])
    batch: list[tuple[str, Manifest, list[dict[str, object]]]] = pickle.loads((folder / "batch.pickle").read_bytes())
    results = {}
    for name, manifest, feeds in batch:
        (folder / "at.txt").write_text(name)
        library = Library(folder / "batch.so", manifest)
        results[name] = [library.run(ordered_inputs(manifest, feed)) for feed in feeds]  # type: ignore[arg-type]
    (folder / "results.pickle").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main()
