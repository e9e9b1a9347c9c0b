"""What a composition asks of the system."""

import resource
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, resource, sys
import retinue

async def main():
    async with retinue.open(model="openai-compatible:m", base_url="http://127.0.0.1:1", home=sys.argv[1]):
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
asyncio.run(main())
"""


def test_a_low_limit_of_open_files_is_raised_for_a_thousand_children(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=50, check=True
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(done.stdout) == (4096 if hard == resource.RLIM_INFINITY else min(4096, hard))
