-- Takes tokens from buckets for a batch of requests, all or nothing for each request.
--
-- Same arithmetic as src/limit/: integers only, every stored value at most 2^53, where a double is
-- exact. Runs unchanged on Redis 6.2, 7.0, 8.x and Valkey 9.
--
-- KEYS    the buckets, each once
-- ARGV[1] current time in microseconds, for tests; empty: the clock of this server
-- ARGV[2] buckets and requests, packed (little endian; d = double, H = 16 bits, B = 8 bits):
--           for each bucket   d units per microsecond   d units of a full bucket
--           then groups of equal requests, to the end:
--                             H requests in the group   B charges, then
--           for each charge   H bucket (from 1)   d units to take   B 1 for a shadow rule
-- ARGV[3] absent, or debts: units granted locally, which are taken off first; packed:
--           for each debt     H bucket (from 1)   d units
--
-- Returns a flat list of integers: the current time; then for each group
--           the number of its requests that are allowed, the first ones; -1: unreadable bucket
--           for each charge: the level of the bucket after the group (-2^54: unreadable)
--                            and, for a shadow rule, the number of requests that took from it
--
-- A bucket is a string of 24 bytes, three doubles: its level, the time of that level, and the level
-- of a full bucket when it was written. The last gives the unit of the level: after a change of rate
-- or burst, a client keeps its fraction of the bucket. A level below zero is a debt: requests are
-- denied until the bucket has refilled above zero. The packed string needs 4.6 us of Redis CPU per
-- check in calls of 64; a text needs 6.0 us and a hash 7.0 us (one GET and one SET instead of HMGET,
-- HSET and PEXPIRE, and no number is parsed).
--
-- The script reads all buckets, then decides, then writes, so that an error changes no bucket.
-- A key expires only after its bucket is full, which equals no key: the time to live only frees
-- memory.

local SECOND = 1000000
local EXACT = 9007199254740992
local UNREADABLE = -2 * EXACT

local now = tonumber(ARGV[1])
if not now then
    -- Read once: up to Redis 7.0 the clock advances while a script runs.
    local time = redis.call('TIME')
    now = time[1] * SECOND + time[2]
end

local floor, max, unpack = math.floor, math.max, struct.unpack
local asked, position = ARGV[2], 1
local levels, ticks, rates, fulls, moved = {}, {}, {}, {}, {}

for bucket = 1, #KEYS do
    local rate, full
    rate, full, position = unpack('<dd', asked, position)
    local level, tick = full, now
    local kept = redis.pcall('GET', KEYS[bucket])
    if type(kept) == 'table' then
        -- A key of another type: the gateway decides on this bucket, and the script on the others.
        -- Any other error (such as a missing permission) fails the call.
        if string.sub(kept.err, 1, 9) ~= 'WRONGTYPE' then
            return { err = kept.err .. ' (GET)' }
        end
        level = UNREADABLE
    elseif kept and #kept == 24 then
        local was_level, was_tick, was_full = unpack('<ddd', kept)
        -- An invalid value counts as no value. NaN fails every comparison.
        if was_full >= 1 and was_full <= EXACT and was_full % 1 == 0 and was_level <= was_full
            and was_level >= max(-1000 * was_full, -EXACT) and was_tick >= 0 then
            level, tick = floor(was_level), floor(was_tick)
            if was_full ~= full then
                -- Written even if no tokens are taken: its time to live is that of the old rule.
                level = max(floor(level / was_full * full), -EXACT)
                moved[bucket] = true
            end
            -- A clock that went back by up to a second changes nothing. If it went back further,
            -- the bucket refills from the current time; otherwise it would not refill until the
            -- clock had caught up. Written even if no tokens are taken.
            if tick > now + SECOND then
                tick = now
                moved[bucket] = true
            end
            if tick < now then
                level = level + (now - tick) * rate
                tick = now
            end
            if level > full then
                level = full
            end
        end
    end
    levels[bucket], ticks[bucket], rates[bucket], fulls[bucket] = level, tick, rate, full
end

local owed, at = ARGV[3] or '', 1
while at <= #owed do
    local bucket, units
    bucket, units, at = unpack('<Hd', owed, at)
    if levels[bucket] ~= UNREADABLE then
        levels[bucket] = max(levels[bucket] - units, -1000 * fulls[bucket], -EXACT)
        moved[bucket] = true
    end
end

local reply, length = { now }, 1
while position <= #asked do
    local passed, charges
    passed, charges, position = unpack('<HB', asked, position)
    local first = position
    for _ = 1, charges do
        local bucket, units, shadow
        bucket, units, shadow, position = unpack('<HdB', asked, position)
        if shadow == 0 then
            local level = levels[bucket]
            if level == UNREADABLE then
                passed = -1
            elseif passed > 0 and level < passed * units then
                passed = max(floor(level / units), 0)
            end
        end
    end
    length = length + 1
    reply[length] = passed
    position = first
    for _ = 1, charges do
        local bucket, units, shadow
        bucket, units, shadow, position = unpack('<HdB', asked, position)
        local level, took = levels[bucket], passed
        if shadow == 1 and level < took * units then
            took = max(floor(level / units), 0)
        end
        if took > 0 then
            level = level - took * units
            levels[bucket], moved[bucket] = level, true
        end
        length = length + 1
        reply[length] = level
        if shadow == 1 then
            length = length + 1
            reply[length] = took
        end
    end
end

for bucket = 1, #KEYS do
    if moved[bucket] then
        local level, full = levels[bucket], fulls[bucket]
        local milliseconds = math.ceil((full - level) / rates[bucket] / 1000) + 1000
        redis.call('SET', KEYS[bucket], struct.pack('<ddd', level, ticks[bucket], full),
            'PX', string.format('%.0f', milliseconds))
    end
end

return reply
