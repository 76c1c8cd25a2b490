#!/usr/bin/env python3
"""What a benchmark ran on, as a line of its table: commit, compiler, processor, kernel.

    benches/provenance.py            prints the line
    benches/provenance.py --clean    fails if the sources differ from the commit: figures are only written then
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

# Files that the benchmarks write themselves: they do not make a tree dirty.
WRITTEN = ["docs/benchmarks.md", "docs/benchmarks", "docs/exactness.md", "docs/exactness", "benches/peers/figures.json"]


def line() -> str:
    rustc = " ".join(output("rustc", "--version").split()[:2])
    return f"tollgate {commit()}, {rustc}, {os.cpu_count()} cores ({processor()}), Linux {platform.release()}"


def commit() -> str:
    """As `git describe --always --dirty`, but regardless of what benchmarks write."""
    return output("git", "describe", "--always") + ("-dirty" if changed() else "")


def changed() -> list[str]:
    """Files that differ from the commit. Untracked ones do not count."""
    excluded = [f":(exclude){path}" for path in WRITTEN]
    status = output("git", "status", "--porcelain", "--untracked-files=no", "--", ".", *excluded)
    return [entry.split()[-1] for entry in status.splitlines()]


def require_clean() -> None:
    if files := changed():
        sys.exit(f"error: figures are written for a commit only, and these files differ from it: {', '.join(files)}")


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line for line in lines if line.startswith("model name")), ": unknown")
    return model.split(":")[1].strip()


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    if "--clean" in sys.argv[1:]:
        require_clean()
    print(line())
