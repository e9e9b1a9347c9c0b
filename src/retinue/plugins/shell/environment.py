"""The environment of commands: what tools need to work, and no keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from retinue.errors import ConfigError

__all__ = ["command_environment", "is_secret_name"]

_WORDS = """
    PATH HOME USER LOGNAME SHELL TZ LANG LANGUAGE TMPDIR TMP TEMP HOSTNAME
    VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PYENV_ROOT PYENV_VERSION PYTHONPATH UV_CACHE_DIR PIP_CACHE_DIR
    NVM_DIR NODE_PATH NODE_ENV VOLTA_HOME PNPM_HOME BUN_INSTALL DENO_DIR
    JAVA_HOME MAVEN_HOME GRADLE_USER_HOME ANDROID_HOME ANDROID_SDK_ROOT DOTNET_ROOT
    GOPATH GOROOT GOMODCACHE GOCACHE GOFLAGS CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN
    RBENV_ROOT GEM_HOME GEM_PATH COMPOSER_HOME ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR
    HOMEBREW_PREFIX NIX_PATH NIX_PROFILES
    LD_LIBRARY_PATH DYLD_LIBRARY_PATH PKG_CONFIG_PATH CC CXX CFLAGS CXXFLAGS LDFLAGS MAKEFLAGS
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS
    HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
"""
_PASSED = frozenset(_WORDS.split())
_PASSED_PREFIXES = ("LC_", "XDG_")
_FIXED = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
}
"""Nobody sits at a terminal: no colours, no pager, no editor, no question for a password."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|^AWS_|^AZURE_|^GOOGLE_", re.I)
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]*@")
_PROVIDER_KEY = re.compile(r"_API_KEY\Z", re.I)


def command_environment(source: Mapping[str, str], *, passed: Iterable[str] = ()) -> dict[str, str]:
    """What commands see of `source`: well-known variables that hold no secret, and those named in `passed`.

    A proxy or other address with a password in it is left out. Raises: ConfigError if `passed` names a provider's key.
    """
    named = frozenset(passed)
    for name in sorted(named):
        if _PROVIDER_KEY.search(name):
            raise ConfigError(f"{name} is a model provider's key and is never handed to commands")
    kept = {name: value for name, value in source.items() if name in named or _is_harmless(name, value)}
    return {**kept, **{name: value for name, value in _FIXED.items() if name not in named}}


def is_secret_name(name: str) -> bool:
    """What is called so holds a secret, as far as a name can say."""
    return _SECRET_NAME.search(name) is not None


def _is_harmless(name: str, value: str) -> bool:
    known = name in _PASSED or name.startswith(_PASSED_PREFIXES)
    return known and not is_secret_name(name) and not _SECRET_VALUE.search(value)
