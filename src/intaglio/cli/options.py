"""Options of a compile as options of a command: names, types, defaults and help come from `intaglio.options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Optional, TypeVar

import typer
from typer.core import TyperCommand

from intaglio.options.groups import GROUPS, group_of
from intaglio.options.request import OPTIONS, Option

Command = TypeVar("Command", bound=Callable[..., None])


class GroupedCommand(TyperCommand):
    """A command whose help shows the options of a compile by group, those of the command itself first."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # of click, which newer versions of typer carry inside
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in ("", *(group for group, _ in GROUPS))}
        arguments = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                arguments.append(record)
            else:
                rows[group_of(parameter.name or "")].append(record)
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        for title, records in rows.items():
            if records:
                with formatter.section(title or "Options"):
                    formatter.write_dl(records)


def with_options(*names: str) -> Callable[[Command], Command]:
    """The command takes these options (without names: all) as keywords, behind its first argument."""
    chosen = [o for o in OPTIONS if o.word and (o.name in names or not names)]

    def decorate(command: Command) -> Command:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
        first = [p for p in own if p.default is p.empty]
        parameters = [*first, *map(_parameter, chosen), *(p for p in own if p not in first)]
        parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]

        @wraps(command)
        def called(**words: object) -> None:
            command(**words)

        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        return called  # type: ignore[return-value]

    return decorate


def _parameter(option: Option) -> inspect.Parameter:
    type_: object = list[str] if option.kind.many else option.kind.command
    default = option.default if isinstance(option.default, (str, bool)) else None
    if default is None:
        type_ = Optional[type_]
    about = typer.Option(option.word, metavar=option.metavar or None, help=option.help)
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[type_, about])
