"""The Redis servers of a case: one, or a master with a replica and a sentinel."""

import signal
from pathlib import Path

from peers.processes import Program, free_port
from peers.servers import Redis

from .clock import WallClock


class Store:
    """A Redis server that can hang, be killed and be started again."""

    def __init__(self, folder: Path, clock: WallClock) -> None:
        self.folder, self.clock = folder, clock
        self.redis = Redis(folder, environment=clock.environment)
        self.url = f"redis://127.0.0.1:{self.redis.port}"

    def hang(self) -> None:
        self.redis.program.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.redis.program.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.redis.connection.close()
        self.redis.program.process.kill()
        self.redis.program.process.wait()

    def start_again(self) -> None:
        self.redis = Redis(self.folder, self.redis.port, environment=self.clock.environment)

    def stop(self) -> None:
        self.resume()
        self.redis.program.stop()


class Watched(Store):
    """A master with a replica, which a sentinel promotes when the master is gone."""

    def __init__(self, folder: Path, clock: WallClock) -> None:
        super().__init__(folder, clock)
        master = str(self.redis.port)
        self.replica = Redis(folder, options=["--replicaof", "127.0.0.1", master])
        self.replica.program.wait_until(lambda: self.replica.info("replication")["master_link_status"] == "up")
        port = free_port()
        file = folder / "sentinel.conf"
        file.write_text(
            f"bind 127.0.0.1\nport {port}\nsentinel monitor main 127.0.0.1 {master} 1\n"
            "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n"
        )
        self.sentinel = Program(["redis-server", str(file), "--sentinel"], folder / "sentinel.log")
        self.sentinel.wait_for(port)
        self.url = f"redis+sentinel://127.0.0.1:{port}/main"

    def wait_until_promoted(self) -> None:
        self.replica.program.wait_until(self.is_promoted)

    def is_promoted(self) -> bool:
        # The sentinel closes all connections when it promotes.
        self.replica.connect()
        return self.replica.info("replication").get("role") == "master"

    def stop(self) -> None:
        for program in (self.sentinel, self.replica.program, self.redis.program):
            program.stop()
