"""Tests of the traffic and the upstream: `PYTHONPATH=benches python3 -m unittest exact.test_traffic`."""

import asyncio
import socket
import time
import unittest

from .judge import Bucket
from .limits import COST, Limits
from .traffic import Client, Planned, Sent, pulses, steady
from .upstream import Upstream


class Plans(unittest.TestCase):
    def test_steady_requests_have_equal_distances(self) -> None:
        self.assertEqual([one.at for one in steady("a", 4, 1)], [0, 0.25, 0.5, 0.75])

    def test_pulses_are_at_the_same_moment(self) -> None:
        self.assertEqual([one.at for one in pulses("a", 2, 1.5, 4.5)], [0, 0, 1.5, 1.5, 3, 3])


class Buckets(unittest.TestCase):
    def test_four_limits_have_a_bucket_for_each_value(self) -> None:
        planned = [Planned(0, "a", tenant="t"), Planned(0, "a", tenant="u")]
        self.assertEqual(set(Limits.FOUR.charges(planned[0])), {"region", "key a", "tenant t", "all"})
        self.assertEqual(Limits.FOUR.buckets(planned)["tenant u"], Bucket(10, 10))

    def test_cost_counts_only_where_it_is_configured(self) -> None:
        costly = Planned(0, "a", cost=COST)
        self.assertEqual(costly.path, "/costly")
        self.assertEqual(Limits.COSTS.charges(costly), {"key a": COST})
        self.assertEqual(Limits.ONE.charges(costly), {"key a": 1})


class Sending(unittest.TestCase):
    def setUp(self) -> None:
        self.upstream = Upstream()
        self.addCleanup(self.upstream.stop)

    def send(self, ports: list[int], planned: list[Planned]) -> list[Sent]:
        return asyncio.run(Client(ports).send_all(planned, time.monotonic()))

    def test_requests_arrive_between_sending_and_answer(self) -> None:
        sent = self.send([self.upstream.port], steady("a", 100, 0.2))
        self.assertEqual([one.status for one in sent], [200] * 20)
        for one in sent:
            self.assertTrue(one.sent <= self.upstream.arrived[one.number] <= one.answered, one)

    def test_gateways_get_requests_in_turn_and_a_closed_port_is_no_answer(self) -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            sent = self.send([self.upstream.port, closed.getsockname()[1]], steady("a", 100, 0.04))
        self.assertEqual([one.status for one in sent], [200, 0, 200, 0])

    def test_closed_idle_connection_is_replaced(self) -> None:
        async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Answers one request, and closes the connection without saying so.
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        async def run() -> list[Sent]:
            server = await asyncio.start_server(closing, "127.0.0.1", 0)
            async with server:
                port = server.sockets[0].getsockname()[1]
                return await Client([port]).send_all(steady("a", 50, 0.1), time.monotonic())

        self.assertEqual([one.status for one in asyncio.run(run())], [200] * 5)


if __name__ == "__main__":
    unittest.main()
