"""A row per TFLite operator, in files by family. Importing the package fills the table."""

from __future__ import annotations

from intaglio.frontends.discovery import import_rows

import_rows(__name__)
