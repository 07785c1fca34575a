"""The isolation report of a worker's hello, and whether it is enough. Applies no layer itself."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import cast

from ..dataclass import dataclass
from ..errors import CodeModeProtocolError, CodeModeWorkerError
from ..guest import layers
from ..guest.layers import LAYERS, REQUIRED_LAYERS

_MAX_DETAIL_CHARACTERS = 200


class LayerState(StrEnum):
    """How one layer stands."""

    IN_FORCE = layers.IN_FORCE
    REFUSED = layers.REFUSED
    NOT_ON_THIS_PLATFORM = "not on this platform"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of isolation; ``detail`` says what it covers, or why it was refused."""

    name: str
    state: LayerState
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.state}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """Every layer in `LAYERS`, in that order."""

    layers: tuple[Layer, ...]

    @classmethod
    def from_hello(cls, value: object) -> IsolationReport:
        """Read the ``isolation`` object of a hello. Raises `CodeModeProtocolError` when it is not one.

        A layer that it leaves out is not on that worker's platform.
        """
        if not isinstance(value, Mapping):
            raise CodeModeProtocolError("the worker's isolation report is not an object")
        reported = cast("Mapping[object, object]", value)
        if any(name not in LAYERS for name in reported):
            raise CodeModeProtocolError("the worker's isolation report names an unknown layer")
        return cls(tuple(_read_layer(name, reported.get(name)) for name in LAYERS))

    def __getitem__(self, name: str) -> Layer:
        return next(layer for layer in self.layers if layer.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.layers))


def _read_layer(name: str, value: object) -> Layer:
    if value is None:
        return Layer(name, LayerState.NOT_ON_THIS_PLATFORM)
    if not isinstance(value, str):
        raise CodeModeProtocolError(f"the worker reported no text for isolation layer {name}")
    state, _, detail = value.partition(": ")
    if state not in (LayerState.IN_FORCE, LayerState.REFUSED):
        raise CodeModeProtocolError(f"the worker reported an unknown state of isolation layer {name}")
    return Layer(name, LayerState(state), detail[:_MAX_DETAIL_CHARACTERS])


def missing_required(report: IsolationReport) -> tuple[Layer, ...]:
    """The required layers that are not in force."""
    return tuple(
        layer for layer in report.layers if layer.name in REQUIRED_LAYERS and layer.state is not LayerState.IN_FORCE
    )


def require_isolation(report: IsolationReport) -> None:
    """Raise `CodeModeWorkerError` naming the required layers that are missing. Details: ``missing``."""
    missing = missing_required(report)
    if missing:
        raise CodeModeWorkerError(
            'isolation="required" is not met here; missing: ' + "; ".join(map(str, missing)),
            details={"missing": [layer.name for layer in missing]},
        )
