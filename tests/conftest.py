"""What every test shares: the one async backend, and how Hypothesis searches."""

import os

import pytest
from hypothesis import settings

pytest_plugins = [
    "retinue.testing.crashes.plugin",  # the fixture `crashes`
    "retinue.testing.scenario.plugin",  # folders with a scenario.yaml are tests
]

# No deadline: a slow machine is no failure, and a hang meets the timeout of pytest. In CI the same examples every time.
# `make explore` looks at more of them.
EXAMPLES = 300 if os.environ.get("RETINUE_LONG") else 30
if os.environ.get("CI"):
    settings.register_profile(
        "retinue", deadline=None, print_blob=True, max_examples=EXAMPLES, derandomize=True, database=None
    )
else:
    settings.register_profile("retinue", deadline=None, print_blob=True, max_examples=EXAMPLES)
settings.load_profile("retinue")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
