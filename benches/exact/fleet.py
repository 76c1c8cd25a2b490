"""The gateways of a case, which can be reloaded and restarted."""

import dataclasses
from pathlib import Path

from peers.gateways import Place
from peers.processes import Failure, Program, free_port

from .clock import WallClock
from .gateways import Contender, Member, Reload
from .limits import Limits
from .stores import Store


class Fleet:
    """Several gateways with one configuration, until `stop`."""

    def __init__(
        self, folder: Path, contender: Contender, number: int, limits: Limits, upstream: int, store: Store, clock: WallClock
    ) -> None:
        self.contender, self.clock = contender, clock
        self.exchange_ports = [free_port() for _ in range(number)]
        self.members = [
            Member(Place(folder, free_port(), upstream), limits, one, self.exchange_ports, store.url)
            for one in range(number)
        ]
        self.programs: list[Program] = []
        # The ports that clients use.
        self.in_service = [member.place.port for member in self.members]
        try:
            for member in self.members:
                self.programs.append(self.start(member))
        except Failure:
            self.stop()
            raise

    def start(self, member: Member) -> Program:
        port = member.place.port
        environment = {} if self.contender.clock_is_fixed else self.clock.environment
        command = self.contender.command(member)
        program = Program(command, member.place.folder / f"{port}.log", environment=environment)
        program.wait_until_serving(port)
        return program

    def reload(self) -> None:
        """All gateways read a file with one more route."""
        for number, member in enumerate(self.members):
            changed = dataclasses.replace(member, is_changed=True)
            self.contender.command(changed)
            if self.contender.reload not in (Reload.NONE, Reload.WATCHES):
                self.programs[number].process.send_signal(self.contender.reload.value)

    def restart(self, number: int) -> None:
        """Ends a gateway that has no traffic, and starts it."""
        self.programs[number].stop()
        self.programs[number] = self.start(self.members[number])

    def stop(self) -> None:
        ended = [program for program in self.programs if program.process.poll() is not None]
        for program in self.programs:
            program.stop()
        if ended:
            ended[0].fail("ended during the case")
