"""The provider protocol: a transport that runs children. Which one a tool uses is configuration, never the model's."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agent.agent import Agent
from retinue.agent.environment import AgentOptions
from retinue.base.bus import Bus
from retinue.base.ids import SessionId
from retinue.base.json import JSONObject
from retinue.base.scope import Layer
from retinue.errors import BadInput, DuplicateProvider, NoProvider, UnsupportedCapability
from retinue.host.host import Seam
from retinue.model.content import InputBlock
from retinue.session.events import Event, Payload, ToolFilter
from retinue.subagent.outcome import Outcome
from retinue.subagent.structured import check_schema
from retinue.tools.tool import CallKey

__all__ = [
    "PROVIDERS",
    "Capabilities",
    "ContinuableProvider",
    "Provider",
    "ProviderAdded",
    "ProviderRemoved",
    "Providers",
    "Run",
    "RunRequest",
    "check_capabilities",
    "is_continuable",
]


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a provider can honour. A request for anything else is refused, never ignored."""

    output_schema: bool = False
    depth_limit: bool = False
    tool_filter: bool = False
    persona: bool = False
    inherits_context: bool = False
    """Its children see the parent's conversation; only wording depends on it."""
    external: AgentOptions | None = None
    """Set: its children are programs of their own, which are asked there instead of a model. They have their own tools
    and prompt, so nothing of that kind reaches them from here, and they cannot report."""


class RunRequest(Struct, frozen=True, kw_only=True):
    """One delegation with one result."""

    parent: Agent
    prompt: tuple[InputBlock, ...]
    label: str = ""
    """Short, for people."""
    key: CallKey | None = None
    """The call that asks; the child's id derives from it, so the same call again finds the same child."""
    child_id: SessionId | None = None
    """An id that a host reserves for the child."""
    cwd: Path | None = None
    """Absolute working folder; None = the parent's."""
    options: AgentOptions = field(default_factory=AgentOptions)
    """What differs from the parent's."""
    max_depth: int | None = None
    """Refuse a child deeper than this; None = no cap of ours."""
    tool_filter: ToolFilter | None = None
    persona: str | None = None
    output_schema: JSONObject | None = None
    """The JSON Schema that the result must satisfy; of type object. One-shot runs only."""
    policies: tuple[Payload, ...] | None = None
    """Events of policy that were captured from the parent; they follow the child's descriptor. None = not yet."""


class Run(Protocol):
    """A child that was accepted. Whoever got it disposes it, always."""

    @property
    def id(self) -> SessionId:
        """The child's session id, or the provider's own for a child elsewhere."""
        ...

    @property
    def agent(self) -> Agent | None:
        """The live child, if it runs in this process."""
        ...

    async def result(self) -> Outcome:
        """How it ended. A failure of the child is an outcome; only a failing runtime raises.

        Cancelling aborts the child's turn (cause `parent`), waits for it to stop, and raises the cancellation.
        """
        ...

    async def dispose(self) -> None:
        """Nothing of the run is left in this process. Idempotent, shielded. Raises: what closing its scope raises."""
        ...


class Provider(Protocol):
    """Runs children of one kind."""

    @property
    def name(self) -> str:
        """Unique in a host."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can honour."""
        ...

    async def start(self, request: RunRequest) -> Run:
        """The child is accepted: its prompt is durable. Failing or cancelled before that leaves nothing behind.

        Raises: DepthExceeded, and what building the child raises.
        """
        ...


class ContinuableProvider(Provider, Protocol):
    """A provider whose children can be messaged for as long as their session exists."""

    async def prepare(self, request: RunRequest) -> Sequence[Event]:
        """The events the child begins with; data only, it gets no agent. Raises: what makes the child impossible."""
        ...


class ProviderAdded(Struct, frozen=True):
    """A provider can be used. A listener that raises undoes the registration."""

    provider: Provider


class ProviderRemoved(Struct, frozen=True):
    """A provider takes no new starts; what it started goes on."""

    provider: Provider


class Providers:
    """The providers of a host, by name."""

    def __init__(self, bus: Bus, capture: Callable[[Agent], tuple[Payload, ...]] = lambda _: ()) -> None:
        """`capture` gives the policies of a parent that its child inherits."""
        self._bus = bus
        self._capture = capture
        self._layer: Layer[Provider] = Layer("provider")

    @contextmanager
    def add(self, provider: Provider) -> Generator[None]:
        """The provider is registered while the context is open. Raises: DuplicateProvider."""
        if self._layer.get(provider.name) is not None:
            raise DuplicateProvider(f"a provider {provider.name!r} is registered already; use another name")
        undo = self._layer.add(provider.name, provider)
        try:
            self._bus.publish_or_veto(ProviderAdded(provider))
        except BaseException:
            undo()
            raise
        try:
            yield
        finally:
            undo()
            self._bus.publish(ProviderRemoved(provider))

    def get(self, name: str) -> Provider | None:
        """The provider of that name."""
        return self._layer.get(name)

    def inheriting(self, request: RunRequest) -> RunRequest:
        """The request with the parent's policies of this instant, unless it has some already.

        Called before anything is awaited, so that what the parent switches meanwhile does not reach the child.
        """
        return replace(request, policies=self._capture(request.parent)) if request.policies is None else request

    async def start(self, name: str, request: RunRequest) -> Run:
        """The named provider accepted the child.

        Raises: NoProvider, UnsupportedCapability, BadInput, all before the provider is asked; then what it raises.
        """
        request = self.inheriting(request)
        provider = self._known(name)
        check_capabilities(provider, request)
        return await provider.start(self.adapted(name, request))

    def adapted(self, name: str, request: RunRequest) -> RunRequest:
        """The request as a child of the named provider is made from it. Raises: NoProvider."""
        external = self._known(name).capabilities.external
        if external is None:
            return request
        return replace(request, options=external, tool_filter=ToolFilter(allow=()), persona="")

    def is_external(self, name: str) -> bool:
        """Children of the named provider are programs of their own; False if there is no such provider here."""
        provider = self._layer.get(name)
        return provider is not None and provider.capabilities.external is not None

    def continuable(self, name: str, request: RunRequest) -> ContinuableProvider:
        """The named provider, which can run such a continuable child. Raises: as `start`."""
        provider = self._known(name)
        check_capabilities(provider, request)
        if request.output_schema is not None:
            raise UnsupportedCapability("a continuable child has no structured result; use a one-shot run for it")
        if not is_continuable(provider):
            raise UnsupportedCapability(f"provider {name!r} has no continuable children; use one-shot runs with it")
        return provider

    def _known(self, name: str) -> Provider:
        provider = self._layer.get(name)
        if provider is None:
            known = ", ".join(self._layer.view) or "none"
            raise NoProvider(f"no provider of children is called {name!r}; registered: {known}")
        return provider


def is_continuable(provider: Provider) -> TypeGuard[ContinuableProvider]:
    """Having `prepare` is the continuable capability. Source: behaviour SS-01."""
    return callable(getattr(provider, "prepare", None))


def check_capabilities(provider: Provider, request: RunRequest) -> None:
    """Return if the provider can honour the request. Raises: UnsupportedCapability, BadInput."""
    wanted = {
        "output_schema": request.output_schema is not None,
        "depth_limit": request.max_depth is not None,
        "tool_filter": request.tool_filter is not None,
        "persona": request.persona is not None,
    }
    for capability, is_wanted in wanted.items():
        if is_wanted and not getattr(provider.capabilities, capability):
            raise UnsupportedCapability(
                f"provider {provider.name!r} does not support {capability}; remove that option or use another provider"
            )
    if request.max_depth is not None and request.max_depth < 0:
        raise BadInput(f"max_depth must be 0 or more, not {request.max_depth}")
    if request.output_schema is not None:
        check_schema(request.output_schema)


PROVIDERS: Seam[Providers] = Seam("subagent.providers")
"""Where the providers of a host are found."""
