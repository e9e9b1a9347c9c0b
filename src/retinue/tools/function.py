"""Typed functions, and bodies that come with a JSON Schema, become tools.

It owns the way from arguments to a call of the function and from its return value to a result. It knows nothing about
who sees the tool, policy or logging: that is the registry's and the pipeline's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, overload

import msgspec
from anyio import to_thread

from retinue.base.json import JSON, JSONObject
from retinue.errors import BadInput, ToolFailure
from retinue.model.client import ToolSpec
from retinue.model.content import Text
from retinue.tools.arguments import Checker, is_object, parse_arguments
from retinue.tools.schema import Signature, read_signature
from retinue.tools.tool import Body, Effect, Tool, ToolContext, ToolResult

__all__ = ["parse_arguments", "schema_tool", "tool"]

Safe = bool | Callable[[JSONObject], bool]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_DOC_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Example|Examples|Note|Source):", re.M)


@overload
def tool(function: Callable[..., object], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    safe: Safe = ...,
    timeout_s: float | None = ...,
    effect: Effect = ...,
    pooled: bool = ...,
    output_limit: int | None = ...,
    render: Callable[[Any], str] | None = ...,
) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    safe: Safe = False,
    timeout_s: float | None = None,
    effect: Effect = "outside",
    pooled: bool = True,
    output_limit: int | None = None,
    render: Callable[[Any], str] | None = None,
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """The decorated function as a Tool.

    Parameters become the schema: `Annotated[T, "words"]` describes one, a default makes it optional, a first parameter
    of type ToolContext is left out. The description is the docstring up to its first section. A returned str is shown
    as it is, a ToolResult passes through, any other value is shown as JSON unless `render` turns it into text. `safe`
    says whether the call may overlap others, or is asked with arguments that satisfy the schema.

    A function that is not async runs in a worker thread. A thread cannot be stopped: a cancelled or timed-out call
    goes on without it, and it runs to its end unseen.

    Raises: BadInput if the function cannot be a tool, in particular without return annotation or docstring.
    """

    def decorate(function: Callable[..., object]) -> Tool:
        called = name or getattr(function, "__name__", "")
        signature = read_signature(called, function)
        spec = _spec(called, description or _description(function), signature.parameters)
        binding = _Binding(signature, Checker(called, signature.parameters))
        run = _run(function)

        async def body(ctx: ToolContext, arguments: JSONObject) -> ToolResult:
            values = binding.convert(arguments)
            leading = (ctx,) if signature.takes_context else ()
            return _result(called, await run(leading, values), signature.returns, render)

        return Tool(
            spec=spec,
            body=body,
            validate=binding.validate,
            is_safe=binding.guard(safe),
            timeout_s=timeout_s,
            effect=effect,
            pooled=pooled,
            output_limit=output_limit,
        )

    return decorate if function is None else decorate(function)


def schema_tool(
    *,
    name: str,
    description: str,
    parameters: JSONObject,
    body: Body,
    safe: Safe = False,
    timeout_s: float | None = None,
    effect: Effect = "outside",
    pooled: bool = True,
    output_limit: int | None = None,
) -> Tool:
    """A Tool whose parameters are given as a JSON Schema; `body` gets arguments that satisfy it.

    Raises: BadInput if the schema is not one, refers to another document, or does not describe an object.
    """
    if parameters.get("type", "object") != "object":
        raise BadInput(f"tool {name!r}: its parameters must be a schema of type object")
    schema: JSONObject = {"type": "object", "properties": {}, **parameters}
    spec = _spec(name, description, schema)
    checker = Checker(name, schema)
    checker.compile()

    async def checked(ctx: ToolContext, arguments: JSONObject) -> ToolResult:
        checker.check(arguments)
        return await body(ctx, arguments)

    def is_safe(arguments: JSONObject) -> bool:
        return checker.compile().is_valid(arguments) and (safe if isinstance(safe, bool) else safe(arguments))

    return Tool(
        spec=spec,
        body=checked,
        validate=checker.check,
        is_safe=is_safe,
        timeout_s=timeout_s,
        effect=effect,
        pooled=pooled,
        output_limit=output_limit,
    )


class _Binding:
    """Turns an argument object into the values of a function's parameters."""

    __slots__ = ("_checker", "_signature")

    def __init__(self, signature: Signature, checker: Checker) -> None:
        self._signature = signature
        self._checker = checker

    def convert(self, arguments: JSONObject) -> dict[str, Any]:
        """Typed values by parameter name. Raises: ToolFailure `INVALID_ARGS`."""
        struct = self._signature.arguments
        try:
            typed = msgspec.convert(arguments, struct)
        except msgspec.ValidationError as error:
            # JSON Schema calls 3.0 an integer, msgspec does not.
            try:
                typed = msgspec.convert(_integral(arguments), struct)
            except msgspec.ValidationError:
                raise self._checker.failure(arguments, otherwise=str(error)) from None
        return {name: getattr(typed, name) for name in struct.__struct_fields__}

    def validate(self, arguments: JSONObject) -> None:
        self.convert(arguments)

    def guard(self, safe: Safe) -> Callable[[JSONObject], bool]:
        """`safe` as a predicate that is only asked about arguments that satisfy the schema."""
        if isinstance(safe, bool):
            return lambda _: safe

        def is_safe(arguments: JSONObject) -> bool:
            try:
                self.convert(arguments)
            except ToolFailure:
                return False
            return safe(arguments)

        return is_safe


def _integral(value: JSON) -> JSON:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_integral(item) for item in value]
    if is_object(value):
        return {key: _integral(item) for key, item in value.items()}
    return value


def _run(
    function: Callable[..., object],
) -> Callable[[tuple[ToolContext, ...], dict[str, Any]], Awaitable[object]]:
    if inspect.iscoroutinefunction(function):

        async def run(leading: tuple[ToolContext, ...], values: dict[str, Any]) -> object:
            return await function(*leading, **values)
    else:

        async def run(leading: tuple[ToolContext, ...], values: dict[str, Any]) -> object:
            return await to_thread.run_sync(partial(function, *leading, **values), abandon_on_cancel=True)

    return run


def _result(name: str, returned: Any, declared: Any, render: Callable[[Any], str] | None) -> ToolResult:
    if isinstance(returned, ToolResult):
        return returned
    if declared is ToolResult:
        raise ToolFailure("INVALID_TOOL_OUTPUT", f"tool {name!r} returned {type(returned).__name__}, not a ToolResult")
    try:
        value: JSON = msgspec.to_builtins(returned, str_keys=True)
        msgspec.convert(value, declared, str_keys=True)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        message = f"tool {name!r} returned something it does not declare: {error}"
        raise ToolFailure("INVALID_TOOL_OUTPUT", message) from error
    if render is not None:
        return ToolResult.text(render(returned), value=value)
    if returned is None:
        return ToolResult(content=(Text("(done)"),))
    return ToolResult.text(value if isinstance(value, str) else msgspec.json.encode(value).decode(), value=value)


def _spec(name: str, description: str, parameters: JSONObject) -> ToolSpec:
    if not _NAME.match(name):
        raise BadInput(f"tool name {name!r}: use 1 to 64 letters, digits, underscores and hyphens")
    if not description.strip():
        raise BadInput(f"tool {name!r} needs a description: give its function a docstring")
    return ToolSpec(name=name, description=description.strip(), parameters=parameters)


def _description(function: Callable[..., object]) -> str:
    text = inspect.getdoc(function) or ""
    section = _DOC_SECTION.search(text)
    return text if section is None else text[: section.start()]
