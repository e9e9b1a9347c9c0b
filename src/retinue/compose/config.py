"""Validated configuration: where it comes from, in which order, and what it may say.

Sources, later ones win: the named bundle, one file, environment variables, options of the caller, single overrides.
Keys may be written in snake_case or camelCase; an unknown key is an error that names its path.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct, field

from retinue.base.json import JSON, JSONObject
from retinue.compose.bundles import BUNDLES
from retinue.compose.keys import checked, is_spelled, known_keys
from retinue.compose.plugins import PLUGINS, plugin_module
from retinue.errors import ConfigError
from retinue.model.prices import Price

__all__ = [
    "Config",
    "Overrides",
    "RecoveryConfig",
    "RetryConfig",
    "StoreConfig",
    "bundled_config",
    "default_home",
    "find_config_file",
    "load_config",
]


class StoreConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where and how sessions are stored."""

    durability: Literal["process", "power"] = "process"
    """What a confirmed write survives: the end of the process, or also a power failure."""
    url: str | None = None
    """`sqlite:///PATH`; the home's own database if absent."""


class RecoveryConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What happens when a root is resumed after its process ended."""

    on_interrupt: Literal["continue", "settle"] = "continue"
    """A child that was caught in a turn goes on with it, or ends as `interrupted` and its parent is told. A root always
    goes on."""


class RetryConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How failed model requests are repeated. Durations in seconds."""

    max_retries: Annotated[int, Meta(ge=0)] = 5
    first_delay_s: Annotated[float, Meta(ge=0)] = 0.5
    max_delay_s: Annotated[float, Meta(ge=0)] = 10.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1


class Config(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that can be configured, with its defaults."""

    bundle: str = "agent-core"
    """The named set of plugins to start from."""
    model: str | None = None
    """`PROVIDER:NAME`."""
    base_url: str | None = None
    """Address of the model server, up to, not including, `/chat/completions` (`/v1/messages` of Anthropic)."""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    """Output tokens a request may use."""
    model_options: dict[str, Any] = {}
    """Extra fields of the request body, sent as they are."""
    prices: dict[str, Price] = {}
    """What models cost, by name, in US dollars for a million tokens; comes before the known prices."""
    home: str | None = None
    """Folder for state; the platform's state folder if absent."""
    permission: Literal["read-only", "workspace-write", "full-access"] | None = None
    """What tools may do, for the root agents that are started or resumed; their children inherit it. Absent: a new root
    has the default of the permissions plugin, and a resumed one keeps what it had."""
    persona: str | None = None
    """Replaces the bundle's opening of the system prompt."""
    store: StoreConfig = StoreConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    retry: RetryConfig = RetryConfig()
    max_parallel_tools: Annotated[int, Meta(ge=1)] = 10
    """Tool bodies of one step that may overlap."""
    tool_order: tuple[str, ...] | None = None
    """Names of tools in the order in which requests list them, with `<unlisted-tools>` once for all others, by name."""
    plugins: dict[str, Any] = {}
    """Options by plugin name; `null` leaves a plugin of the bundle out."""


class Overrides(Struct, frozen=True, kw_only=True):
    """What a caller decides over file and environment. None = says nothing."""

    config_file: Path | None = None
    model: str | None = None
    base_url: str | None = None
    home: str | None = None
    store: str | None = None
    permission: str | None = None
    max_tokens: int | None = None
    settings: Sequence[str] = field(default_factory=tuple[str, ...])
    """`path.to.key=value` each; the value is YAML."""


# Values whose meaning in YAML is known without its parser: importing that takes as long as opening the database.
_CONSTANTS: JSONObject = {"null": None, "true": True, "false": False}
_WORD = re.compile(r"(?!(?:y|n|yes|no|on|off)\Z)[a-z]+(?:-[a-z]+)*\Z")

_VARIABLES = {
    "RETINUE_MODEL": "model",
    "RETINUE_BASE_URL": "base_url",
    "RETINUE_HOME": "home",
    "RETINUE_PERMISSION": "permission",
    "RETINUE_STORE": "store.url",
    "RETINUE_RECOVERY_ON_INTERRUPT": "recovery.on_interrupt",
}


def load_config(overrides: Overrides, *, cwd: Path, environ: Mapping[str, str]) -> Config:
    """The configuration that holds for `cwd`. Raises: ConfigError with the source, the key and what is allowed."""
    said: list[tuple[str, JSONObject]] = []
    file = overrides.config_file or _variable_path(environ, cwd) or find_config_file(cwd, environ)
    if file is not None:
        said.append((str(file), _spelled(_read_yaml(file), str(file))))
    for variable, path in _VARIABLES.items():
        if environ.get(variable):
            said.append((variable, _nested(path, environ[variable])))
    given = {
        "model": overrides.model,
        "base_url": overrides.base_url,
        "home": overrides.home,
        "store.url": overrides.store,
        "permission": overrides.permission,
        "max_tokens": overrides.max_tokens,
    }
    said.extend(("", _nested(path, value)) for path, value in given.items() if value is not None)
    for setting in overrides.settings:
        path, value = _setting(setting)
        said.append(("--set", _spelled(_nested(path, value), f"--set {path}")))
    merged: JSONObject = {}
    for _, one in said:
        merged = _over(merged, one)
    try:
        return _over_bundle(merged)
    except ConfigError:
        for source, one in reversed(said):
            checked(one, Config, source=source)
        raise


def bundled_config(bundle: str, **fields: JSON) -> Config:
    """The named bundle with these fields over it, and nothing from files or environment. Raises: ConfigError."""
    return _over_bundle(_spelled({"bundle": bundle, **fields}, "configuration"))


def _over_bundle(given: JSONObject) -> Config:
    bundle = given.get("bundle", "agent-core")
    if not isinstance(bundle, str) or bundle not in BUNDLES:
        raise ConfigError(f"there is no bundle {bundle!r}; there are {', '.join(sorted(BUNDLES))}")
    whole = cast(JSONObject, msgspec.to_builtins(BUNDLES[bundle]))
    return checked(_over(whole, given), Config)


def find_config_file(cwd: Path, environ: Mapping[str, str]) -> Path | None:
    """`retinue.yaml` of the folder or its nearest parent that has one, else the user's file, else None."""
    for folder in (cwd, *cwd.parents):
        for name in ("retinue.yaml", "retinue.yml"):
            if (folder / name).is_file():
                return folder / name
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", os.path.expanduser("~")), ".config")
    user = Path(base) / "retinue" / "retinue.yaml"
    return user if user.is_file() else None


def default_home(environ: Mapping[str, str]) -> Path:
    """The platform's folder for state of this user."""
    user = Path(environ.get("HOME") or os.path.expanduser("~"))
    if sys.platform == "darwin":
        return user / "Library" / "Application Support" / "retinue"
    state = environ.get("XDG_STATE_HOME")
    return (Path(state) if state else user / ".local" / "state") / "retinue"


def _variable_path(environ: Mapping[str, str], cwd: Path) -> Path | None:
    value = environ.get("RETINUE_CONFIG")
    return cwd / value if value else None


def _read_yaml(file: Path) -> JSONObject:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {str(file)!r}: {error.strerror}") from error
    try:
        value = msgspec.yaml.decode(data)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file} is not valid YAML: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{file} must hold a mapping of keys, not {type(value).__name__}")
    return cast(JSONObject, value)


def _setting(setting: str) -> tuple[str, JSON]:
    """The path that is set, and its value."""
    path, equals, text = setting.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"--set {setting!r}: write it as path.to.key=value")
    value: JSON = _CONSTANTS.get(text, text)
    if value is text and not _WORD.match(text):
        try:
            value = cast(JSON, msgspec.yaml.decode(text.encode()))
        except msgspec.DecodeError as error:
            raise ConfigError(f"--set {setting!r}: the value is not valid YAML: {error}") from error
    return path.strip(), value


def _nested(path: str, value: JSON) -> JSONObject:
    first, *rest = path.split(".")
    return {first: _nested(".".join(rest), value) if rest else value}


def _spelled(source: JSONObject, where: str) -> JSONObject:
    """One source with every key as its struct spells it, so that sources meet whichever way they spell one.

    What plugins are given is only looked at, and the plugin imported for it, if it has a key in camelCase; else it is
    checked when the plugin is loaded. Raises: ConfigError for an unknown key.
    """
    known = known_keys(source, Config, where)
    plugins = known.get("plugins")
    if isinstance(plugins, dict):
        known["plugins"] = {name: _spelled_options(name, given, where) for name, given in plugins.items()}
    return known


def _spelled_options(name: str, given: JSON, where: str) -> JSON:
    if name not in PLUGINS or not isinstance(given, dict) or is_spelled(given):
        return given
    return known_keys(given, plugin_module(name).OPTIONS, f"{where}: plugins.{name}")


def _over(base: JSONObject, over: JSONObject) -> JSONObject:
    """`base` where `over` says nothing; mappings that both have are put together in the same way."""
    result = dict(base)
    for key, value in over.items():
        present = base.get(key)
        result[key] = _over(present, value) if isinstance(present, dict) and isinstance(value, dict) else value
    return result
