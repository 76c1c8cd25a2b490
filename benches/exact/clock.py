"""A wall clock for programs that read it through the C library. It can be set while they run."""

import struct
import subprocess
from pathlib import Path

SOURCE = Path("tests/it/support/wall_clock.c")


class WallClock:
    def __init__(self, folder: Path, name: str) -> None:
        self.library = folder / f"{name}.so"
        self.offset = folder / f"{name}.offset"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, SOURCE], check=True)
        self.offset.write_bytes(struct.pack("=q", 0))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "WALL_CLOCK_OFFSET": str(self.offset)}

    def set(self, seconds_off: int) -> None:
        # In place: the programs have the file in memory.
        with self.offset.open("r+b") as file:
            file.write(struct.pack("=q", seconds_off))
