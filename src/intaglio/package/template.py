"""Network templates: the skeleton around the generated layers, bound to a hardware interface (`posix`, `baremetal`).

A template is a folder. `NAME` in a path becomes the model's name; a file that ends in `.j2` is rendered with jinja2
(its variables are the fields of `project.Project`) and left out when it comes out empty, any other is copied. A file whose name
starts with `_` is there for others to include. Shipped ones
share the network itself (`_network`) and what is around it on a device (`_firmware`): what is not in their own folder comes
from there. Templates come from users: they run in jinja's sandbox, and a mistake is reported with file and line.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from types import TracebackType

import jinja2
import jinja2.sandbox
from jinja2.bccache import Bucket

from intaglio.errors import UserError, quoted
from intaglio.package.folder import fresh_folder, writing
from intaglio.package.project import Project
from intaglio.targets.caches import cache_root, unsafe

SHARED = {
    "posix": ("_bindings", "_network"),
    "opencl": ("posix", "_network"),
    "wasm": ("posix", "_network"),
    "baremetal": ("_bindings", "_network", "_firmware"),
    "_combined": ("_firmware",),
    "_variants": ("posix", "_network"),
    "_variant": ("_network",),
}
REQUIRED = ("include/NAME.h.j2", "src/NAME.c.j2")


Folders = tuple[Path, ...]  # of one template; the first that has a file gives it


def template_names() -> list[str]:
    return sorted(p.name for p in _shipped().iterdir() if p.is_dir() and not p.name.startswith("_"))


def shipped_template(name: str) -> Folders:
    if name not in SHARED:
        known = ", ".join(f"`{n}`" for n in template_names())
        raise UserError("unknown-template", f"unknown template {quoted(name)}", hint=f"known templates: {known}")
    return tuple(_shipped() / folder for folder in (name, *SHARED[name]))


def _files(folders: Folders) -> dict[str, Path]:
    """Every file of a template by its path inside; links are not followed."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
                found.setdefault(path.relative_to(folder).as_posix(), path)
    return dict(sorted(found.items()))


def export_template(name: str, folder: Path) -> None:
    """Hand a template to the user, who edits it and compiles with `--template`."""
    source = shipped_template(name)
    with writing(folder):
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if taken:
        hint = "use a new or empty folder"
        raise UserError("output-exists", f"{quoted(str(folder), 200)} exists and is not an empty folder", hint=hint)
    with fresh_folder(folder, force=False) as fresh:
        for relative, path in _files(source).items():
            target = fresh / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def render_template(folders: Folders, project: Project, output: Path) -> None:
    template = folders[0]
    if not template.is_dir():
        hint = "`intaglio template export posix DIR` writes one to start from"
        raise UserError("template", f"the template {quoted(str(template), 200)} is not a folder", hint=hint)
    files = _files(folders)
    for required in REQUIRED:
        if required not in files:
            hint = "`intaglio template export posix DIR` writes a complete one"
            raise UserError("template", f"the template {quoted(str(template), 200)} has no `{required}`", hint=hint)
    render_files(folders, project.name, project.variables(), output)


def render_files(folders: Folders, name: str, variables: dict[str, object], output: Path) -> None:
    _render_each(_files(folders), folders, name, variables, output)


def render_own(folders: Folders, name: str, variables: dict[str, object], output: Path) -> None:
    """The files of the first folder alone; they may include those of the others."""
    _render_each(_files(folders[:1]), folders, name, variables, output)


def _render_each(files: dict[str, Path], folders: Folders, name: str, variables: dict[str, object], output: Path) -> None:
    environment = _environment(folders)
    for relative, path in files.items():
        if path.name.startswith("_"):
            continue
        target = output / relative.replace("NAME", name).removesuffix(".j2")
        text = _render(environment, folders[0], relative, variables) if relative.endswith(".j2") else None
        if text == "":
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            shutil.copyfile(path, target)
        else:
            target.write_text(text, encoding="utf-8")


class _Loader(jinja2.FileSystemLoader):
    """Links are not followed, as when files are copied: a template holds what is in its folder."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        text, path, fresh = super().get_source(environment, template)
        if not any(Path(path).resolve().is_relative_to(Path(root).resolve()) for root in self.searchpath):
            raise jinja2.TemplateNotFound(template, f"`{template}` is a link to a file outside the template")
        return text, path, fresh


@cache
def _environment(folders: Folders) -> jinja2.Environment:
    """Kept, because parsing templates takes longer than rendering them; jinja notices when a file changes."""
    return jinja2.sandbox.SandboxedEnvironment(
        loader=_Loader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        bytecode_cache=_Parsed() if all(folder.is_relative_to(_shipped()) for folder in folders) else None,
    )


class _Parsed(jinja2.BytecodeCache):
    """Shipped templates as jinja has parsed them, in the user's cache folder: that takes longer than all other work on a small
    model. A file that is damaged, or that others could have written, is not used."""

    def load_bytecode(self, bucket: Bucket) -> None:
        path = self._path(bucket)
        try:
            digest, _, content = path.read_bytes().partition(b"\n")
            if hashlib.sha256(content).hexdigest().encode() == digest and not unsafe(path):
                bucket.bytecode_from_string(content)
        except OSError:
            return

    def dump_bytecode(self, bucket: Bucket) -> None:
        content, path = bucket.bytecode_to_string(), self._path(bucket)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as beside:
                beside.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
            os.replace(beside.name, path)
        except OSError:
            return

    def _path(self, bucket: Bucket) -> Path:
        """The key covers the place of the template; jinja compares its text, and the version of Python."""
        return cache_root() / "templates" / f"{jinja2.__version__}-{bucket.key}"


def _render(environment: jinja2.Environment, template: Path, relative: str, variables: dict[str, object]) -> str:
    try:
        return environment.get_template(relative).render(variables)
    except jinja2.TemplateSyntaxError as error:
        raise _fault(template, error.name or relative, error.lineno, str(error.message)) from None
    except UnicodeDecodeError:
        raise _fault(template, relative, 1, "the file is not UTF-8 text") from None
    except RecursionError:
        raise _fault(template, relative, 1, "the template includes itself") from None
    except Exception as error:  # what a template does is its author's: any failure is shown at its line
        raise _fault(template, relative, _line_of(error.__traceback__, relative), str(error)) from None


def _line_of(trace: TracebackType | None, relative: str) -> int:
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename.endswith(relative)]
    return (lines[-1] if lines else None) or 1


def _fault(template: Path, relative: str, line: int, reason: str) -> UserError:
    hint = "`intaglio template export posix DIR` writes a working template to compare with"
    return UserError("template", reason, where=f"{template / relative}, line {line}", hint=hint)


def _shipped() -> Path:
    return Path(str(resources.files("intaglio.package") / "templates"))
