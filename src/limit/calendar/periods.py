# Start, end and next end of calendar periods, by Python's zoneinfo: the reference for calendar.rs.
#
# Reads lines "zone seconds ..." and writes, for each instant, the bounds under each of the calendars below, in
# seconds. Independent of calendar.rs: it lists the first days of all periods around the instant, and
# converts them to instants.
import sys
from bisect import bisect_right
from calendar import monthrange
from datetime import date, datetime, timedelta, timezone
from functools import cache
from zoneinfo import ZoneInfo

CALENDARS = [("d", 1), ("week", 1), ("week", 7), ("month", 1), ("month", 15), ("month", 29),
             ("month", 30), ("month", 31), ("year", 1)]


@cache
def first_days(period, anchor, around):
    if period == "d":
        return [around + timedelta(days=n) for n in range(-3, 5)]
    if period == "week":
        days = [around + timedelta(days=n) for n in range(-16, 17)]
        return [day for day in days if day.isoweekday() == anchor]
    if period == "month":
        months = [(around.year * 12 + around.month - 1 + n) for n in range(-2, 4)]
        months = [(month // 12, month % 12 + 1) for month in months]
        return [date(y, m, min(anchor, monthrange(y, m)[1])) for y, m in months]
    return [date(around.year + n, 1, 1) for n in range(-1, 4)]


for line in sys.stdin:
    name, *instants = line.split()
    zone = ZoneInfo(name)

    @cache
    def instant(day):
        return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())

    @cache
    def bounds_around(day):
        # A skipped day has no period.
        return [sorted(set(map(instant, first_days(period, anchor, day)))) for period, anchor in CALENDARS]

    lines = []
    for second in map(int, instants):
        around = datetime.fromtimestamp(second, timezone.utc).date()
        found = [name, str(second)]
        for bounds in bounds_around(around):
            at = bisect_right(bounds, second)
            found += map(str, bounds[at - 1:at + 2])
        lines.append(" ".join(found))
    print("\n".join(lines))
