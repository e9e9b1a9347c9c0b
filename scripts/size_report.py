"""Report the longest Python files, and fail when one has outgrown what a reader can hold.

The limits and the files excused from them, each with its reason, stand in pyproject.toml under `[tool.retinue.size]`.
An excuse that is no longer needed fails too, so the list cannot rot.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOWN = 5


def main() -> int:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["retinue"]["size"]
    warn_lines: int = config["warn_lines"]
    fail_lines: int = config["fail_lines"]
    allowed: dict[str, str] = config["allowed"]

    sizes = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("src", "tests")
        for path in (ROOT / folder).rglob("*.py")
    }
    faults: list[str] = []
    for rank, (name, lines) in enumerate(sorted(sizes.items(), key=lambda item: (-item[1], item[0]))):
        note = ""
        if lines > fail_lines and name not in allowed:
            note = f"over {fail_lines} lines"
            faults.append(f"{name} has {lines} lines; split it, or give a reason in [tool.retinue.size.allowed]")
        elif lines > fail_lines:
            note = f"allowed: {allowed[name]}"
        elif lines > warn_lines:
            note = f"warning: over {warn_lines} lines"
        if note or rank < SHOWN:
            print(f"{lines:6} {name}  {note}".rstrip())

    for name, reason in allowed.items():
        if not reason.strip():
            faults.append(f"{name} is allowed without a reason")
        if sizes.get(name, 0) <= fail_lines:
            faults.append(f"{name} needs no excuse any more; take it off [tool.retinue.size.allowed]")

    for fault in faults:
        print(f"size: {fault}", file=sys.stderr)
    print(f"{len(sizes)} files, {sum(sizes.values())} lines")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
