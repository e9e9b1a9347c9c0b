"""Every frame that we send, as a server or to one, held against the protocol's own JSON Schema."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

__all__ = ["check_frame", "check_result"]

_FOLDER = Path(__file__).parent / "schema"
_UNIONS = ("SessionUpdate", "ContentBlock", "ToolCallContent")


@cache
def _definitions(unstable: bool) -> dict[str, Any]:
    file = _FOLDER / ("schema.unstable.json" if unstable else "schema.json")
    found = json.loads(file.read_text(encoding="utf-8"))["$defs"]
    for name in _UNIONS:  # a field that the protocol does not know is a mistake of ours
        for branch in found[name]["oneOf"]:
            branch["unevaluatedProperties"] = False
    return found


@cache
def _validator(unstable: bool, name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$ref": f"#/$defs/{name}",
            "$defs": _definitions(unstable),
        }
    )


@cache
def _name(side: str, method: str, suffix: str) -> str | None:
    for name, schema in _definitions(True).items():
        if (schema.get("x-side"), schema.get("x-method")) == (side, method) and name.endswith(suffix):
            return name
    return None


def _check(unstable: bool, name: str, value: Any) -> None:
    errors = [
        f"{'/'.join(map(str, e.instance_path))}: {e.message}" for e in _validator(unstable, name).iter_errors(value)
    ]
    assert errors == [], f"{name}: {value}"


def check_frame(frame: Any, *, unstable: bool, to: str = "client") -> None:
    """The frame is one that may be sent to a client, or to an agent. `unstable`: what is not stable was announced."""
    assert frame["jsonrpc"] == "2.0"
    kinds = {key for key in ("method", "result", "error") if key in frame}
    assert len(kinds) == 1
    if kinds == {"method"}:
        assert set(frame) <= {"jsonrpc", "id", "method", "params"}
        if frame["method"] == "$/cancel_request":
            _check(unstable, "CancelRequestNotification", frame["params"])
            return
        name = _name(to, frame["method"], "Request" if "id" in frame else "Notification")
        assert name is not None, frame
        _check(unstable, name, frame["params"])
    elif kinds == {"error"}:
        assert set(frame) == {"jsonrpc", "id", "error"}
        _check(unstable, "RequestId", frame["id"])
        _check(unstable, "Error", frame["error"])
    else:
        assert set(frame) == {"jsonrpc", "id", "result"}


def check_result(method: str, result: Any, *, unstable: bool, of: str = "agent") -> None:
    """It is a result of that method, which an agent or a client answers."""
    name = _name(of, method, "Response")
    assert name is not None, method
    _check(unstable, name, result)
