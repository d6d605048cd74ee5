"""What a fleet has found out: a table, and packages beside it.

    STORE/results.sqlite        results by key; runs, and which results belong to each; results that later runs have replaced
    STORE/packages/ab/abcd...   packages, each under the digest of its manifest
    STORE/live/7                a file that run 7 holds a lock of while it lives

Several runs at once share the work: a job is claimed before it starts, and what a run that lives has claimed is left to it. The
claims of a run that was killed count for nothing: the lock goes with its process.

Every change is one transaction of SQLite, so whoever is killed leaves the table as it was before or after. Several processes may
write: a result is recorded once, by who comes first, and the others find it. A package is put in its place by a rename, before its
result is recorded.

The table is one file: on a network file system without locks, let one machine at a time run `intaglio fleet`. Its workers, wherever
they are, write packages only.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import ToolError, UserError, quoted
from intaglio.fleet.pieces import FAILED, NO, NOT_EMULATED, OK, Job, Result, Value
from intaglio.package.ownership import MANIFEST

FILE = "results.sqlite"
FORMAT = 3
FINAL = (OK, NO, FAILED, NOT_EMULATED)  # others are tried again by the next run
BUSY_S = 60.0
MOST_CUT = 20  # runs that were cut short are looked at
_TABLES = """
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, model TEXT NOT NULL, variant TEXT NOT NULL, place TEXT NOT NULL,
    state TEXT NOT NULL, reason TEXT NOT NULL, figures TEXT NOT NULL, package TEXT NOT NULL, attempts INTEGER NOT NULL,
    seconds REAL NOT NULL, run INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS replaced (
    key TEXT NOT NULL, last INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, figures TEXT NOT NULL,
    package TEXT NOT NULL, PRIMARY KEY (key, last)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, started REAL NOT NULL, ended REAL, file TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rows (
    run INTEGER NOT NULL, kind TEXT NOT NULL, model TEXT NOT NULL, variant TEXT NOT NULL, place TEXT NOT NULL, key TEXT NOT NULL,
    PRIMARY KEY (run, kind, model, variant, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, run INTEGER NOT NULL) WITHOUT ROWID;
"""
_FROM_1 = "ALTER TABLE results ADD COLUMN run INTEGER NOT NULL DEFAULT 0;"
# The result of a row as its run had it: what was replaced after that run, else what is there.
_ROWS = """
SELECT w.kind, w.model, w.variant, w.place, coalesce(o.state, r.state, ''), coalesce(o.reason, r.reason, ''),
    coalesce(o.figures, r.figures, '{}'), coalesce(o.package, r.package, '')
FROM rows w LEFT JOIN results r ON w.key = r.key AND (r.run <= w.run OR r.run = 0)
    LEFT JOIN replaced o ON o.key = w.key AND o.last = (SELECT min(last) FROM replaced WHERE key = w.key AND last >= w.run)
WHERE w.run=? ORDER BY w.model, w.variant, w.place, w.kind
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A result as it is in the table; "" is the state of a job without one."""

    kind: str
    model: str
    variant: str
    place: str
    state: str
    reason: str
    figures: dict[str, Value]
    package: str = ""

    @property
    def name(self) -> tuple[str, str, str, str]:
        return self.kind, self.model, self.variant, self.place


class Store:
    def __init__(self, folder: Path, *, create: bool = True) -> None:
        self.folder = folder
        path = folder / FILE
        if not create and not path.is_file():
            hint = "`intaglio fleet FILE` makes one"
            raise UserError("no-store", f"{quoted(str(folder), 200)} has no results of a fleet", hint=hint)
        with self._writing() if create else self.reading():
            if create:
                (folder / "packages").mkdir(parents=True, exist_ok=True)
            self._open = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
            self._open.execute("PRAGMA synchronous=FULL")
            found = self._open.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, 1, 2, FORMAT):
                what = f"{quoted(str(path), 200)} has the format {found}, this version reads {FORMAT}"
                raise UserError("bad-store", what, hint="use another `store`, or the version that made it")
            self._run = 0
            self._lock: int | None = None
            if found < FORMAT and (create or found):
                self._make_tables()

    def _make_tables(self) -> None:
        """Those of a new store, or of one that an earlier version has made."""
        self._open.execute("BEGIN IMMEDIATE")
        found = self._open.execute("PRAGMA user_version").fetchone()[0]  # another process may have been first
        if found < FORMAT:
            for statement in (*(_FROM_1 if found == 1 else "").split(";"), *_TABLES.split(";"), f"PRAGMA user_version={FORMAT}"):
                self._open.execute(statement)
        self._open.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            hint = "it is damaged, or no table of `intaglio fleet`; a copy, or a file of `--export`, can be compared too"
            raise ToolError("bad-store", f"{quoted(str(self.folder / FILE), 200)} cannot be read: {error}", hint=hint) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            slug = "disk-full" if "full" in str(error) or "No space" in str(error) else "bad-store"
            hint = "free some space, then run it again: it goes on where this one stopped"
            hint = hint if slug == "disk-full" else "use another `store`, or move this one"
            raise ToolError(slug, f"the results in {quoted(str(self.folder), 200)} cannot be written: {error}", hint=hint) from None

    def close(self) -> None:
        self._open.close()
        self._unlock()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._writing():
            self._open.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._open.execute("COMMIT")
            except BaseException:
                if self._open.in_transaction:  # SQLite ends it itself where the disk is full
                    self._open.execute("ROLLBACK")
                raise

    # Results ----------------------------------------------------------------------------------------------------------

    def done(self, keys: Iterable[str]) -> set[str]:
        """Of these, those with a result that stays."""
        wanted = set(keys)
        marks = ",".join("?" * len(FINAL))
        found = self._open.execute(f"SELECT key FROM results WHERE state IN ({marks})", FINAL)
        return wanted & {row[0] for row in found}

    def result(self, key: str) -> Row:
        found = self._open.execute(
            "SELECT kind, model, variant, place, state, reason, figures, package FROM results WHERE key=?", (key,)
        ).fetchone()
        if found is None:
            return Row("", "", "", "", "", "not run", {})
        kind, model, variant, place, state, reason, figures, package = found
        return Row(kind, model, variant, place, state, reason, json.loads(figures), package)

    def package(self, digest: str) -> Path:
        return self.folder / "packages" / digest[:2] / digest

    def failed(self, keys: Iterable[str]) -> set[str]:
        wanted = set(keys)
        return wanted & {row[0] for row in self._open.execute("SELECT key FROM results WHERE state=?", (FAILED,))}

    def forget_lost(self) -> None:
        """Results whose package somebody has removed from the store are to be found out again."""
        rows = self._open.execute("SELECT key, package FROM results WHERE package != ''").fetchall()
        if lost := [key for key, digest in rows if not (self.package(digest) / MANIFEST).is_file()]:
            self.forget(lost)

    def forget(self, keys: Iterable[str]) -> None:
        """They are to be found out again; runs that have ended keep what they had."""
        with self._transaction():
            for key in keys:
                self._keep_replaced(key)
                self._open.execute("DELETE FROM results WHERE key=?", (key,))

    def _keep_replaced(self, key: str) -> None:
        """What the runs so far have seen of a result that another replaces."""
        self._open.execute(
            "INSERT OR IGNORE INTO replaced SELECT r.key, e.last, r.state, r.reason, r.figures, r.package FROM results r,"
            " (SELECT max(id) AS last FROM runs WHERE ended IS NOT NULL) e WHERE r.key=? AND e.last >= r.run",
            (key,),
        )

    def record(self, jobs: Sequence[Job], results: Sequence[Result], attempts: int) -> int:
        """All of them at once. One that is there and final stays; returns how many are new."""
        by_key = {job.key: job for job in jobs}
        new = 0
        with self._transaction():
            for one in results:
                job = by_key[one.key]
                old = self._open.execute("SELECT state FROM results WHERE key=?", (one.key,)).fetchone()
                if old is not None and old[0] in FINAL:
                    continue
                self._keep_replaced(one.key)
                figures = json.dumps(dict(one.figures), sort_keys=True)
                values = (one.key, *job.name, one.state, one.reason, figures, one.package, attempts, one.seconds, self._run)
                self._open.execute(f"INSERT OR REPLACE INTO results VALUES ({','.join('?' * len(values))})", values)
                new += 1
            self._open.executemany("DELETE FROM claims WHERE key=?", [(one.key,) for one in results])
        return new

    # Runs -------------------------------------------------------------------------------------------------------------

    def begin(self, file: str, jobs: Sequence[Job]) -> int:
        """A run that was cut short and asked for the same is taken up: it keeps its number. One that lives does not lose it."""
        wanted = {(*job.name, job.key) for job in jobs}
        with self._transaction():
            cut = self._open.execute("SELECT id FROM runs WHERE ended IS NULL AND file=? ORDER BY id DESC", (file,)).fetchall()
            for (run,) in cut[:MOST_CUT]:
                rows = self._open.execute("SELECT kind, model, variant, place, key FROM rows WHERE run=?", (run,))
                if {tuple(row) for row in rows} == wanted and self._locked(run):
                    self._run = int(run)
                    return self._run
            made = self._open.execute("INSERT INTO runs (started, file) VALUES (?, ?)", (time.time(), file)).lastrowid
            self._run = int(made or 0)
            self._locked(self._run)
            self._open.executemany(f"INSERT INTO rows VALUES ({made}, ?, ?, ?, ?, ?)", sorted(wanted))
        return self._run

    def end(self, run: int) -> None:
        with self._transaction():
            self._open.execute("UPDATE runs SET ended=? WHERE id=?", (time.time(), run))
            # What a later run has found out beside this one belongs to both: it can be seen from the earlier one on.
            own = "SELECT key FROM rows WHERE run=?"
            self._open.execute(f"UPDATE results SET run=? WHERE run>? AND key IN ({own})", (run, run, run))
            self._open.execute("DELETE FROM claims WHERE run=?", (run,))
            self._lock_file(run).unlink(missing_ok=True)  # a run that has ended is not taken up
        self._unlock()

    # Several runs at once: locks are tried within transactions alone, so that nobody meets the trial of another

    def _lock_file(self, run: int) -> Path:
        return self.folder / "live" / str(run)

    def _locked(self, run: int) -> bool:
        """From now on this process has it; False: another one has."""
        path = self._lock_file(run)
        path.parent.mkdir(exist_ok=True)
        self._unlock()
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _lives(self, run: int) -> bool:
        """Does another process hold it?"""
        try:
            lock = os.open(self._lock_file(run), os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def claim(self, keys: Sequence[str]) -> tuple[set[str], set[str]]:
        """Before they are worked on: those that have a result now, and those that another run works on. This run has the rest."""
        lives: dict[int, bool] = {}
        with self._transaction():
            done = self.done(keys)
            busy = set()
            for key in keys:
                found = self._open.execute("SELECT run FROM claims WHERE key=?", (key,)).fetchone()
                if found is not None and found[0] != self._run and key not in done:
                    run = int(found[0])
                    if lives.setdefault(run, self._lives(run)):
                        busy.add(key)
            own = [(key, self._run) for key in keys if key not in done and key not in busy]
            self._open.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?)", own)
        return done, busy

    def runs(self, file: str | None = None) -> list[int]:
        """Those that came to their end; `file`: of this project file."""
        rows = self._open.execute("SELECT id, file FROM runs WHERE ended IS NOT NULL ORDER BY id")
        return [row[0] for row in rows if file in (None, row[1])]

    def files(self) -> list[str]:
        """Project files whose runs are here; that of the last run is the last."""
        rows = self._open.execute("SELECT file FROM runs WHERE ended IS NOT NULL GROUP BY file ORDER BY max(id)")
        return [row[0] for row in rows]

    def rows(self, run: int) -> list[Row]:
        """As they were when the run ended, whatever later ones have found out."""
        found = self._open.execute(_ROWS, (run,))
        return [Row(k, m, v, p, state, why, json.loads(figures), package) for k, m, v, p, state, why, figures, package in found]

    def table(self) -> list[tuple[object, ...]]:
        """All results, without what depends on how they were made: attempts and times."""
        columns = "key, kind, model, variant, place, state, reason, figures, package"
        return list(self._open.execute(f"SELECT {columns} FROM results ORDER BY key"))


__all__ = ["FILE", "Row", "Store"]
