"""A network to render templates for."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

from intaglio.fitting.weights import plan_weights
from intaglio.options.request import Request
from intaglio.package.project import Project, project_of
from intaglio.pipeline import plan_request
from intaglio.stages.watch import Watch


@cache
def sample_project() -> Project:
    model = Path(str(resources.files("intaglio") / "demo_data" / "digits.onnx"))
    made = plan_request(Request(model, Path("out"), target="generic"), Watch())
    weights = plan_weights(made.program.constants, made.deployment)
    return project_of(made.program, made.target, made.deployment, weights, version="0", digest="0" * 64, build="0")
