#!/usr/bin/env python3
"""Simulates gateways with Redis Clusters that are larger than those that can be measured on one machine.

    make cluster-simulation                         # or: benches/cluster_simulation.py; prints a table, half a minute
    benches/cluster_simulation.py --gateways 100    # fewer gateways, each with more requests
    benches/cluster_simulation.py --full            # the limit of all clients is exceeded
    benches/cluster_simulation.py --test            # checks the model by cases that can be computed by hand
    benches/cluster_simulation.py --help

It is a discrete simulation of single requests, with whole numbers: nanoseconds, and a token of 10^9 units. What is modelled:

- Gateways, by docs/redis.md and src/store/redis/batch/: for each master, a check leaves at once if no call is in flight;
  otherwise it waits and is sent with all that wait, at most 128 checks at a time. Another send starts if 128 checks wait, or
  a quarter of the budget after the last one; at most 4 are in flight. In a cluster, a send has one call of the script for each slot.
- Requests, by docs/cluster.md: each has a bucket of its key, its address, its route and all clients. Those in one slot are one
  check. What the slots of a refused request have taken is given back with the next calls to them, less what was refilled
  since. A bucket that has refused is not asked again before it has a token (deny cache).
- Leases, by docs/leases.md: the buckets of routes and of all clients are lent. The slices are shorter than the time for which
  tokens are lent, so expiry is left out.
- Servers: each bucket in a call costs CPU time by the measured figures below; further checks of the same buckets in a call cost none. A
  call waits for those before it.

What is sampled: a slice of time, and at most 10 of the gateways, with their share of the clients and of the limits that all
share. The calls of the other gateways appear as the load of each master, which makes calls wait as in a queue of one
server with random arrivals (M/M/1). It is computed from the sampled gateways, in several rounds. The busiest master is that by expected
load: clients by the number of lanes of each master, and the buckets that many clients share as they were simulated.

Requests are refused by two limits: 10 % come from keys that send twice their limit, and one route in 20, with 0.5 % of the requests,
gets 10 % more than its limit. All other limits are at least 20 % above what comes. The burst of routes and of all clients is
what comes in four seconds, since at most a quarter of it is lent.

Columns: "requests/s" is what is offered (by default 100,000 for each master), or that at which the busiest master uses 70 % of a core if that
is less; the other columns are at that load. "busiest master": its load to the mean. "calls" of the script, with those that lend.
"wrongly": of all requests, those that were refused while requests that are refused elsewhere held the tokens. "under-grant":
how many fewer requests pass than with an ideal limiter, which decides each of the same requests in one step. "over-grant": units
that are missing in an ideal bucket that only counts requests that pass, when they take their tokens. It must be 0: any other value
ends the program.
"""

import argparse
import heapq
import math
import random
import sys
import unittest

NS = 1_000_000_000
TOKEN = NS  # units
SLOTS = 16_384
MAX_CHECKS, MAX_CALLS, LONG_NS = 128, 4, 2_500_000
BUDGET_NS = 10_000_000

# Measured on one core of an x86-64 server, Redis 7.0: checks a second, by checks (of different buckets) a call,
# 16 clients with 4 calls in flight. A check alone in a call that is written together with others: 145,000.
CHECKS_PER_SECOND = {1: 121_000, 2: 156_000, 4: 198_000, 16: 233_000, 64: 323_000}
PIPELINED_PER_SECOND = 145_000
# Between servers of one data centre.
ROUND_TRIP_US = 500

ROUTES, FULL_ROUTE_SHARE, FULL_ROUTE_EXCESS = 20, 0.005, 1.1
CLIENT_RATE, BUSY_SHARE, BUSY_EXCESS = 50, 0.1, 2.0


def call_ns(buckets, is_first=True):
    """CPU time of the server for a call with as many buckets, linear between the measured figures. `is_first`: of a send."""
    points = [(count, count * NS / rate) for count, rate in CHECKS_PER_SECOND.items()]
    for (low, low_ns), (high, high_ns) in zip(points, points[1:]):
        if buckets <= high or high == points[-1][0]:
            cost = low_ns + (high_ns - low_ns) * (buckets - low) / (high - low)
            break
    saved = 0 if is_first else NS / CHECKS_PER_SECOND[1] - NS / PIPELINED_PER_SECOND
    return int(cost - saved)


CALL_NS = [call_ns(max(buckets, 1)) for buckets in range(4 * MAX_CHECKS + 1)]
LATER_CALL_NS = [call_ns(max(buckets, 1), False) for buckets in range(4 * MAX_CHECKS + 1)]


class Bucket:
    """A token bucket in Redis. `rate` in tokens a second, so in units a nanosecond. `kind` groups buckets in the results.
    `times` is by how much the rate is larger with all gateways."""

    def __init__(self, kind, rate, burst, slot=0, level=None, times=1):
        self.real_rate = math.ceil(rate * times)
        self.kind, self.rate, self.full, self.slot = kind, rate, burst * TOKEN, slot
        self.level = self.full if level is None else int(level * TOKEN)
        self.at = self.lent = 0
        self.start = self.level
        # Times at which requests that passed have taken a token; refusals (time, level); tokens of refused requests
        # (from, to).
        self.passed, self.refused, self.held = [], [], []

    def refill(self, now):
        self.level = min(self.level + (now - self.at) * self.rate, self.full - self.lent)
        self.at = now

    def take(self, now):
        """Takes a token. Returns whether there was one."""
        self.refill(now)
        if self.level < TOKEN:
            return False
        self.level -= TOKEN
        return True

    def give_back(self, now, taken_at):
        """Gives back a token, less what was refilled since."""
        self.refill(now)
        units = max(TOKEN - self.real_rate * (now - taken_at), 0)
        self.level = min(self.level + units, self.full - self.lent)

    def lend(self, now, wanted, divisor, least, spent):
        """Lends up to `wanted` tokens; `spent` tokens of earlier ones are no longer lent. Returns tokens."""
        self.refill(now)
        self.lent -= spent * TOKEN
        lends = min(wanted, self.level // divisor // TOKEN, (self.full // 4 - self.lent) // TOKEN)
        if lends < max(least, 1):
            return 0
        self.level -= lends * TOKEN
        self.lent += lends * TOKEN
        return lends

    def excess(self):
        """Units that were granted beyond an ideal bucket, which only counts requests that pass."""
        level, at, excess = self.start, 0, 0
        for now in sorted(self.passed):
            level = min(level + (now - at) * self.rate, self.full) - TOKEN
            at = now
            excess = max(excess, -level)
        return excess

    def wrongly(self):
        """Number of refusals for which tokens of refused requests were missing; each token counts for one refusal."""
        if not self.refused or not self.held:
            return 0
        events = [(start, 0, end, 0) for start, end in self.held] + [(at, 1, 0, level) for at, level in self.refused]
        active, wrong = [], 0
        for at, is_refusal, end, level in sorted(events):
            while active and active[0] <= at:
                heapq.heappop(active)
            if not is_refusal:
                heapq.heappush(active, end)
                continue
            missing = -(-(TOKEN - level) // TOKEN)
            if len(active) >= missing:
                wrong += 1
                for _ in range(missing):
                    heapq.heappop(active)
        return wrong


class Request:
    """A request that waits for its parts."""

    __slots__ = ("at", "gateway", "buckets", "unanswered", "refused", "taken", "leased")

    def __init__(self, at, gateway, buckets):
        self.at, self.gateway, self.buckets = at, gateway, buckets
        self.unanswered, self.refused = 0, False
        # (part, time) of the parts that have taken tokens; leases that were spent, with the time.
        self.taken, self.leased = [], []


class Lease:
    """Tokens of a bucket that a gateway has borrowed."""

    def __init__(self, demand, divisor):
        self.tokens = self.spent = 0
        self.is_asking = False
        self.least = math.ceil(0.3 * demand)
        self.wanted = max(min(2_000, int(0.8 * demand)), self.least)
        self.low = 0.15 * demand
        self.divisor = divisor


class Queue:
    """What of a gateway waits for a master. As src/store/redis/batch/queue.rs."""

    def __init__(self):
        self.waiting, self.sends, self.last_sent = [], 0, -NS


class World:
    """The sampled gateways and all masters. `master_of` is the master of a slot; `loads` the load of each master by the calls
    of all gateways."""

    def __init__(self, masters, gateways, round_trip_ns=ROUND_TRIP_US * 1000, loads=None, one_call=False, seed=1):
        self.masters, self.one_call = masters, one_call
        self.half_ns = round_trip_ns // 2
        self.loads = loads or [0.0] * masters
        self.random = random.Random(seed)
        self.queues = [[Queue() for _ in range(masters)] for _ in range(gateways)]
        self.denied = [{} for _ in range(gateways)]
        self.leases = [{} for _ in range(gateways)]
        self.now, self.number, self.events = 0, 0, []
        self.done, self.late, self.is_counted = [], 0, True
        self.calls = self.sends = self.checks = self.lease_calls = 0
        self.cpu_ns = {}
        self.latencies = []

    def master_of(self, slot):
        return slot * self.masters // SLOTS

    def schedule(self, at, action, *arguments):
        self.number += 1
        heapq.heappush(self.events, (at, self.number, action, arguments))

    def run(self, until=None):
        while self.events and (until is None or self.events[0][0] < until):
            self.now, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)

    def arrive(self, gateway, buckets):
        """A request with these buckets arrives now."""
        request = Request(self.now, gateway, buckets)
        denied = self.denied[gateway]
        if any(denied.get(bucket, 0) > self.now for bucket in buckets):
            self.done.append((request, False))
            return
        asked = [bucket for bucket in buckets if not self.spend(request, bucket)]
        parts = {}
        for bucket in asked:
            parts.setdefault(0 if self.one_call else bucket.slot, []).append(bucket)
        request.unanswered = len(parts)
        if not parts:
            self.finish(request)
        for slot, part in parts.items():
            self.enqueue(gateway, self.master_of(slot), (slot, part, request, None))

    def spend(self, request, bucket):
        lease = self.leases[request.gateway].get(bucket)
        if lease is None:
            return False
        has = lease.tokens > 0
        if has:
            lease.tokens -= 1
            request.leased.append((lease, bucket))
        if lease.tokens < lease.low and not lease.is_asking:
            lease.is_asking = True
            at = self.now + self.half_ns + self.wait_ns(self.master_of(bucket.slot))
            self.schedule(at, self.lend, lease, bucket)
        return has

    def lend(self, lease, bucket):
        """A separate call, in the background."""
        spent, lease.spent = lease.spent, 0
        tokens = bucket.lend(self.now, lease.wanted, lease.divisor, lease.least, spent)
        if self.is_counted:
            self.lease_calls += 1
        self.account([(bucket,)], 0)
        self.schedule(self.now + CALL_NS[1] + self.half_ns, self.borrow, lease, tokens)

    def borrow(self, lease, tokens):
        lease.tokens += tokens
        # What could not be lent is asked for again later.
        if tokens:
            lease.is_asking = False
        else:
            self.schedule(self.now + NS // 4, setattr, lease, "is_asking", False)

    def enqueue(self, gateway, master, queued):
        queue = self.queues[gateway][master]
        takes_long = self.now - queue.last_sent >= LONG_NS
        queue.waiting.append(queued)
        starts = queue.sends == 0 or takes_long or len(queue.waiting) >= MAX_CHECKS
        if starts and queue.sends < MAX_CALLS:
            queue.sends += 1
            queue.last_sent = self.now
            # After what else arrives at this moment.
            self.schedule(self.now, self.leave, queue, master)

    def leave(self, queue, master):
        """Sends what waits: a call for each slot."""
        calls, checks, sent = {}, 0, 0
        for queued in queue.waiting:
            is_check = queued[2] is not None
            if is_check and checks == MAX_CHECKS:
                break
            checks += is_check
            sent += 1
            calls.setdefault(queued[0], []).append(queued)
        if not calls:
            queue.sends -= 1
            return
        del queue.waiting[:sent]
        queue.last_sent = self.now
        self.schedule(self.now + self.half_ns + self.wait_ns(master), self.execute, queue, master, calls, self.now)

    def wait_ns(self, master):
        """Time that a call waits at a server for calls of others."""
        load = min(self.loads[master], 0.98)
        if load == 0 or self.random.random() >= load:
            return 0
        return int(self.random.expovariate((1 - load) / CALL_NS[1]))

    def execute(self, queue, master, calls, sent_at):
        """Runs the calls of a send at a server."""
        answers, per_call = [], []
        for call in calls.values():
            buckets = {}
            for _, part, request, taken_at in call:
                for bucket in part:
                    buckets[bucket] = None
                if request is None:
                    for bucket in part:
                        bucket.give_back(self.now, taken_at)
                        bucket.held.append((taken_at, self.now))
            for _, part, request, _ in call:
                if request is not None:
                    answers.append((request, part, self.take(part)))
            per_call.append(buckets)
            if self.is_counted:
                self.calls += 1
                self.checks += sum(request is not None for _, _, request, _ in call)
        service = self.account(per_call, 1)
        self.schedule(self.now + service + self.half_ns, self.answer, queue, master, answers, self.now, sent_at)

    def account(self, per_call, sends):
        """Accounts the CPU time of the calls of a send to their buckets. Returns it."""
        total = 0
        for number, buckets in enumerate(per_call):
            cost = (LATER_CALL_NS if number else CALL_NS)[min(len(buckets), 4 * MAX_CHECKS)]
            total += cost
            if self.is_counted:
                for bucket in buckets:
                    key = bucket if bucket.kind in ("route", "everyone") else None
                    self.cpu_ns[key] = self.cpu_ns.get(key, 0) + cost / len(buckets)
        if self.is_counted:
            self.sends += sends
        return total

    def take(self, part):
        """A check: a token from all buckets of a part or from none. Returns those that have too little, with their level."""
        for bucket in part:
            bucket.refill(self.now)
        missing = [(bucket, bucket.level) for bucket in part if bucket.level < TOKEN]
        for bucket, level in missing:
            bucket.refused.append((self.now, level))
        if not missing:
            for bucket in part:
                bucket.level -= TOKEN
        return missing

    def answer(self, queue, master, answers, at, sent_at):
        for request, part, missing in answers:
            if missing:
                request.refused = True
                for bucket, level in missing:
                    wait = min(-(-(TOKEN - level) // bucket.real_rate), NS)
                    self.denied[request.gateway][bucket] = sent_at + wait
            else:
                request.taken.append((part, at))
            request.unanswered -= 1
            if request.unanswered == 0:
                self.finish(request)
        self.leave(queue, master)

    def finish(self, request):
        allowed = not request.refused
        self.late += self.now - request.at > BUDGET_NS
        if self.is_counted:
            self.latencies.append(self.now - request.at)
        self.done.append((request, allowed))
        for lease, bucket in request.leased:
            if allowed:
                lease.spent += 1
                bucket.passed.append(self.now)
            else:
                lease.tokens += 1
        for part, at in request.taken:
            if allowed:
                for bucket in part:
                    bucket.passed.append(at)
            else:
                slot = 0 if self.one_call else part[0].slot
                self.enqueue(request.gateway, self.master_of(slot), (slot, part, None, at))


class Ideal:
    """One limiter that decides each request in one step. Its buckets start as those of the simulation."""

    def __init__(self, buckets):
        self.buckets = {bucket: Bucket(bucket.kind, bucket.rate, 0) for bucket in buckets}
        for bucket, own in self.buckets.items():
            own.full, own.level = bucket.full, bucket.start

    def take(self, now, buckets):
        own = [self.buckets[bucket] for bucket in buckets]
        for bucket in own:
            bucket.refill(now)
        if any(bucket.level < TOKEN for bucket in own):
            return False
        for bucket in own:
            bucket.level -= TOKEN
        return True


class Setup:
    """A cluster and its traffic."""

    def __init__(self, masters, lanes, leases, arguments):
        self.masters, self.lanes, self.leases, self.arguments = masters, lanes, leases, arguments
        self.gateways = max(arguments.gateways * masters // 100, 1)
        self.sampled = min(self.gateways, 10)
        self.seed = arguments.seed
        chosen = random.Random(self.seed)
        # src/store/redis/keys.rs: each lane has a slot in its part of all slots.
        self.lane_slots = [int((lane + chosen.random()) * SLOTS / lanes) for lane in range(lanes)]
        self.shares = [1 / masters] * masters
        if lanes:
            self.shares = [0.0] * masters
            for slot in self.lane_slots:
                self.shares[slot * masters // SLOTS] += 1 / lanes

    def slot(self, chosen):
        place = chosen.random()
        return self.lane_slots[int(place * self.lanes)] if self.lanes else int(place * SLOTS)

    def traffic(self, chosen, rate):
        """Buckets for `rate` requests a second, and a function that draws those of a request."""
        # The limits that many clients share. Their slots do not depend on the rate.
        placed, times = random.Random(self.seed + 1), self.gateways / self.sampled
        everyone_rate = rate / FULL_ROUTE_EXCESS if self.arguments.full else 1.2 * rate
        everyone = Bucket("everyone", max(int(everyone_rate), 1), max(int(4 * rate), 1), self.slot(placed),
                          0 if self.arguments.full else None, times)
        share = (1 - FULL_ROUTE_SHARE) / (ROUTES - 1)
        routes = []
        for route in range(ROUTES):
            is_full = route == 0
            of_route = rate * (FULL_ROUTE_SHARE / FULL_ROUTE_EXCESS if is_full else 1.2 * share)
            routes.append(Bucket("route", max(round(of_route), 1), max(round(4 * of_route), 2), self.slot(placed),
                                 0 if is_full else None, times))

        def client(is_busy):
            key = Bucket("key", CLIENT_RATE, 10 if is_busy else CLIENT_RATE, self.slot(chosen),
                         chosen.random() if is_busy else None)
            return key, Bucket("address", 4 * CLIENT_RATE, 4 * CLIENT_RATE, self.slot(chosen))

        busy = [client(True) for _ in range(max(round(rate * BUSY_SHARE / (BUSY_EXCESS * CLIENT_RATE)), 1))]
        others = [client(False) for _ in range(max(round(rate * (1 - BUSY_SHARE) * 2 / CLIENT_RATE), 1))]

        def draw():
            key, address = chosen.choice(busy if chosen.random() < BUSY_SHARE else others)
            is_full = chosen.random() < FULL_ROUTE_SHARE
            route = routes[0 if is_full else chosen.randrange(1, ROUTES)]
            return (key, address, route, everyone)

        clients = [bucket for both in busy + others for bucket in both]
        return clients, routes, everyone, draw

    def lend(self, world, routes, everyone, rate, chosen):
        """Gateways start with leases of any age."""
        shares = [(everyone, 1.0), (routes[0], FULL_ROUTE_SHARE)]
        shares += [(route, (1 - FULL_ROUTE_SHARE) / (ROUTES - 1)) for route in routes[1:]]
        for gateway in range(self.sampled):
            for bucket, share in shares:
                demand = rate / self.sampled * share
                if demand < 20:
                    continue
                lease = Lease(demand, 2 * self.sampled)
                world.leases[gateway][bucket] = lease
                wanted = int(chosen.uniform(lease.low, lease.wanted))
                lease.tokens = bucket.lend(0, wanted, lease.divisor, min(wanted, lease.least), 0)

    def simulate(self, rate, requests, loads):
        """`rate` is that of a gateway. Returns the results."""
        chosen = random.Random(self.seed + 2)
        sampled_rate = rate * self.sampled
        clients, routes, everyone, draw = self.traffic(chosen, sampled_rate)
        is_single = self.masters == 1
        world = World(self.masters, self.sampled, self.arguments.round_trip * 1000, loads, is_single, self.seed + 3)
        if self.leases:
            self.lend(world, routes, everyone, sampled_rate, chosen)
        buckets = clients + routes + [everyone]
        ideal, ideally = Ideal(buckets), 0
        world.is_counted, now = False, 0
        for number in range(requests):
            now += int(chosen.expovariate(sampled_rate) * NS) + 1
            world.run(now)
            if number == requests // 10:
                world.is_counted, counted_from = True, now
            world.now = now
            taken = draw()
            ideally += ideal.take(now + world.half_ns, taken)
            world.arrive(chosen.randrange(self.sampled), taken)
        seconds = (now - counted_from) / NS
        counted = requests - requests // 10
        world.run()
        return Results(self, world, buckets, ideally, seconds, counted, rate)

    def carried(self):
        """Results at the offered load, or at the load at which the busiest master is as busy as it may be."""
        rate, loads = self.arguments.requests / self.arguments.gateways, None
        for _ in range(4):
            results = self.simulate(rate, self.arguments.sample // 5, loads)
            loads = results.loads
            if max(loads) > self.arguments.load or rate < self.arguments.requests / self.arguments.gateways:
                rate = min(rate * self.arguments.load / max(loads), self.arguments.requests / self.arguments.gateways)
            loads = [min(load, self.arguments.load) for load in loads]
        results = self.simulate(rate, self.arguments.sample, loads)
        # What is left of the noise of the search.
        offered = self.arguments.requests / self.arguments.gateways * self.gateways
        results.rate = min(results.rate * self.arguments.load / max(results.loads), offered)
        return results


class Results:
    def __init__(self, setup, world, buckets, ideally, seconds, counted, rate):
        self.setup, self.rate = setup, rate * setup.gateways
        total = len(world.done)
        allowed = sum(is_allowed for _, is_allowed in world.done)
        self.refused = 1 - allowed / total
        self.calls = (world.calls + world.lease_calls) / counted
        self.checks_a_call = world.checks / max(world.calls, 1)
        self.cpu_us = sum(world.cpu_ns.values()) / counted / 1000
        scale = setup.gateways / setup.sampled / seconds / NS
        self.loads = [world.cpu_ns.get(None, 0) * scale * share for share in setup.shares]
        for bucket, cpu_ns in world.cpu_ns.items():
            if bucket is not None:
                self.loads[0 if world.one_call else world.master_of(bucket.slot)] += cpu_ns * scale
        mean = sum(self.loads) / len(self.loads)
        self.busiest = max(self.loads) / mean
        self.wrongly = sum(bucket.wrongly() for bucket in buckets) / total
        self.under = 1 - allowed / max(ideally, 1)
        self.late = world.late / total
        self.excess = max(bucket.excess() for bucket in buckets)
        assert self.excess == 0, f"{self.excess} units were granted beyond the limits"
        world.latencies.sort()
        self.p99_us = world.latencies[len(world.latencies) * 99 // 100] / 1000

    def row(self):
        setup = self.setup
        lanes = "one Redis" if setup.masters == 1 else str(setup.lanes)
        cells = [
            str(setup.masters), lanes, "yes" if setup.leases else "no", thousands(self.rate),
            f"×{self.busiest:.2f}", f"{self.calls:.2f}", f"{self.checks_a_call:.1f}", f"{self.cpu_us:.1f}",
            f"{self.refused:.1%}", f"{self.wrongly:.2%}", str(self.excess), f"{max(self.under, 0):.1%}", f"{self.p99_us / 1000:.2f}",
        ]
        return "| " + " | ".join(cells) + " |"


def thousands(number):
    digits = 10 ** max(len(str(int(number))) - 2, 0)
    return f"{int(round(number / digits) * digits):,}"


HEAD = """\
| masters | `lanes` | leases | requests/s | busiest master | calls a request | checks a call | Redis CPU, µs | refused | wrongly | over-grant | under-grant | p99, ms |
| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", action="store_true", help="check the model, and end")
    parser.add_argument("--masters", type=int, nargs="+", default=[1, 3, 6, 12, 30, 100])
    parser.add_argument("--lanes", nargs="+", default=["0", "64", "x1", "x10", "1024"], help="x10: ten for each master")
    parser.add_argument("--requests", type=float, default=1e7, help="offered, in a second, for 100 masters; fewer in proportion")
    parser.add_argument("--gateways", type=int, default=1000, help="for 100 masters; fewer in proportion")
    parser.add_argument("--load", type=float, default=0.7, help="of a core: the most of the busiest master. Requests are reduced to it")
    parser.add_argument("--full", action="store_true", help="10 %% more requests than the limit of all clients allows")
    parser.add_argument("--round-trip", type=int, default=ROUND_TRIP_US, help="to a master, in microseconds")
    parser.add_argument("--sample", type=int, default=8_000, help="requests that are simulated for each row")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.test:
        return test()
    print(HEAD)
    for masters in arguments.masters:
        lanes = [int(text[1:]) * masters if text.startswith("x") else int(text) for text in arguments.lanes]
        for number in dict.fromkeys([0] if masters == 1 else [min(one, 1024) for one in lanes]):
            for leases in (False, True):
                print(Setup(masters, number, leases, arguments).carried().row(), flush=True)
    return 0


class Model(unittest.TestCase):
    """Cases that can be computed by hand. A trip takes 250 us."""

    def world(self, masters=1, gateways=1):
        return World(masters, gateways)

    def test_call_costs_what_was_measured(self):
        self.assertEqual([call_ns(count) for count in (1, 2, 64)], [8_264, 12_820, 198_142])
        self.assertEqual(call_ns(3), (12_820 + 20_202) // 2)
        self.assertEqual(call_ns(1, is_first=False), 6_896)

    def test_checks_wait_for_the_call_in_flight_and_leave_together(self):
        world = self.world()
        for at in (0, 1_000, 2_000):
            world.schedule(at, world.arrive, 0, (Bucket("key", 1, 10),))
        world.run()
        self.assertEqual((world.calls, world.checks), (2, 3))
        first = 500_000 + 8_264
        second = first + 500_000 + 12_820
        self.assertEqual(world.latencies, [first, second - 1_000, second - 2_000])

    def test_send_has_a_call_for_each_slot(self):
        world = self.world()
        for slot in (1, 2, 2):
            world.schedule(0, world.arrive, 0, (Bucket("key", 1, 10, slot),))
        world.run()
        self.assertEqual((world.sends, world.calls, world.checks), (1, 2, 3))
        self.assertEqual(sum(world.cpu_ns.values()), call_ns(1) + call_ns(2, is_first=False))

    def test_equal_checks_cost_as_one(self):
        world, bucket = self.world(), Bucket("everyone", 1, 200)
        for _ in range(100):
            world.schedule(0, world.arrive, 0, (bucket,))
        world.run()
        self.assertEqual((world.calls, world.checks, round(sum(world.cpu_ns.values()))), (1, 100, call_ns(1)))

    def test_full_send_starts_another(self):
        world, bucket = self.world(), Bucket("everyone", 1, 200)
        world.schedule(0, world.arrive, 0, (bucket,))
        for _ in range(MAX_CHECKS):
            world.schedule(1, world.arrive, 0, (bucket,))
        world.run()
        self.assertEqual((world.sends, max(world.latencies)), (2, 500_000 + 8_264))

    def test_refused_request_gives_back_less_what_was_refilled(self):
        world = self.world(masters=2)
        taken, empty = Bucket("address", 100, 10, 0, 5), Bucket("key", 1, 10, SLOTS - 1, 0)
        world.schedule(0, world.arrive, 0, (taken, empty))
        world.run()
        self.assertEqual(world.done[0][1], False)
        # Taken at 250 us; the answer is there at 508.264 us, and given back a trip later.
        self.assertEqual(taken.held, [(250_000, 758_264)])
        taken.refill(758_264)
        # What was lost is what was refilled from then on: 0.05 tokens.
        self.assertEqual(taken.level, 5 * TOKEN + 100 * 250_000)
        self.assertEqual(world.calls, 3)

    def test_request_with_all_buckets_in_one_slot_is_one_check(self):
        world, empty, other = self.world(masters=3), Bucket("key", 1, 10, 7, 0), Bucket("address", 1, 10, 7)
        world.schedule(0, world.arrive, 0, (empty, other))
        world.run()
        self.assertEqual((world.calls, world.checks, other.held), (1, 1, []))

    def test_refused_bucket_is_not_asked_until_it_has_a_token(self):
        world, empty = self.world(), Bucket("key", 100, 10, 0, 0)
        # At 250 us the bucket has 0.025 tokens, so it needs 9.75 ms, counted from the time at which the call was sent.
        for at in (0, 9_700_000, 9_800_000):
            world.schedule(at, world.arrive, 0, (empty,))
        world.run()
        self.assertEqual((world.calls, [allowed for _, allowed in world.done]), (2, [False, False, True]))

    def test_lease_is_a_part_of_the_level_and_of_the_burst(self):
        bucket = Bucket("everyone", 1_000, 1_000)
        self.assertEqual(bucket.lend(0, 2_000, 8, 1, 0), 125)
        self.assertEqual(bucket.lend(0, 2_000, 2, 1, 0), 125)
        self.assertEqual(bucket.lend(0, 2_000, 2, 1, 0), 0)
        bucket.refill(NS)
        self.assertEqual((bucket.level, bucket.lent), (750 * TOKEN, 250 * TOKEN))
        self.assertEqual(bucket.lend(NS, 2_000, 2, 101, 100), 0)
        self.assertEqual(bucket.lend(NS, 2_000, 2, 100, 0), 100)

    def test_leased_request_needs_no_call(self):
        world, bucket = self.world(), Bucket("everyone", 1_000, 10_000)
        lease = world.leases[0][bucket] = Lease(1_000, 2)
        lease.tokens = bucket.lend(0, 500, 2, 300, 0)
        for at in range(10):
            world.schedule(at, world.arrive, 0, (bucket,))
        world.run()
        self.assertEqual((world.calls, lease.tokens, lease.spent, len(bucket.passed)), (0, 490, 10, 10))

    def test_excess_is_what_an_ideal_bucket_lacks(self):
        bucket = Bucket("key", 1, 10)
        bucket.passed = [0] * 10 + [NS]
        self.assertEqual(bucket.excess(), 0)
        bucket.passed.append(NS + NS // 4)
        self.assertEqual(bucket.excess(), TOKEN * 3 // 4)

    def test_ideal_bucket_shows_what_a_give_back_of_all_would_grant(self):
        bucket = Bucket("key", 100, 2)
        self.assertTrue(bucket.take(0))  # of a request that another slot refuses
        # The bucket would have been full without that request: what it refilled since is not given back.
        self.assertTrue(bucket.take(NS // 100) and bucket.take(NS // 100))
        bucket.give_back(NS // 100, 0)
        self.assertFalse(bucket.take(NS // 100))
        bucket.passed = [NS // 100] * 2
        self.assertEqual(bucket.excess(), 0)
        bucket.passed = [NS // 100] * 3
        self.assertEqual(bucket.excess(), TOKEN)

    def test_held_token_counts_for_one_refusal(self):
        bucket = Bucket("key", 1, 10)
        bucket.held, bucket.refused = [(100, 200)], [(150, 0), (160, 0), (250, 0)]
        self.assertEqual(bucket.wrongly(), 1)

    def test_ideal_takes_from_all_buckets_or_from_none(self):
        full, empty = Bucket("key", 1, 10), Bucket("address", 1, 10, 0, 0)
        ideal = Ideal([full, empty])
        self.assertFalse(ideal.take(0, (full, empty)))
        self.assertEqual(ideal.buckets[full].level, 10 * TOKEN)
        self.assertTrue(ideal.take(NS, (full, empty)))

    def test_lanes_are_spread_evenly(self):
        arguments = argparse.Namespace(gateways=1_000, seed=1, full=False)
        self.assertEqual(Setup(4, 64, False, arguments).shares, [0.25] * 4)
        self.assertEqual(sorted(Setup(100, 64, False, arguments).shares)[:36], [0.0] * 36)
        self.assertEqual(Setup(100, 64, False, arguments).gateways, 1_000)


def test():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Model)
    return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
