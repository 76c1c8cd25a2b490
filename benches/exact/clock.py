"""A wall clock for programs that read it through the C library. It can be set while they run."""

import atexit
import functools
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path("tests/it/support/wall_clock.c")


class WallClock:
    def __init__(self, folder: Path, name: str) -> None:
        self.offset = folder / f"{name}.offset"
        self.offset.write_bytes(struct.pack("=q", 0))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(library()), "WALL_CLOCK_OFFSET": str(self.offset)}

    def set(self, seconds_off: int) -> None:
        # In place: the programs have the file in memory.
        with self.offset.open("r+b") as file:
            file.write(struct.pack("=q", seconds_off))


@functools.cache
def library() -> Path:
    """The library that the programs load, compiled once and deleted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tollgate-exact-clock-"))
    atexit.register(shutil.rmtree, folder)
    # Servers that give up root read it, too.
    folder.chmod(0o755)
    file = folder / "wall_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", file, SOURCE], check=True)
    return file
