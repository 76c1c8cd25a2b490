-- Takes tokens from buckets for many requests, all or nothing for each request.
--
-- The same arithmetic as src/limit/: integers only, every kept value at most 2^53, where a double
-- is exact. Runs unchanged on Redis 6.2, 7.0, 8.x and Valkey 9.
--
-- KEYS    the buckets, each once
-- ARGV[1] now in microseconds, for tests; empty: this server's own clock
-- ARGV[2] what is asked, packed (little endian; d = double, H = 16 bits, B = 8 bits):
--           for each bucket   d units per tick   d units of a full bucket
--           then groups of equal requests, to the end
--                             H requests in the group   B charges, then
--           for each charge   H bucket (from 1)   d units to take   B 1 for a shadow rule
-- ARGV[3] left out, or what was granted without asking and is taken off first, packed:
--           for each          H bucket (from 1)   d units
--
-- Returns, flat, all integers: now; then for each group
--           how many of its requests passed, the first ones; -1: a bucket cannot be read
--           for each charge: the bucket's level after the group (-2^54: it cannot be read)
--                            and, for a shadow rule, how many requests took from it
--
-- A bucket is a string of 24 bytes: level, the tick at which the level was true, and the level of
-- a full bucket when it was written, as three doubles. The last says what units the level is in:
-- after a change of rate or burst, a client keeps the fraction of the bucket that it had. A level
-- below zero is a debt, which the bucket's own rate pays off before anybody passes again. A string
-- and not a hash, packed and not text: 4.6 us of Redis' CPU a check in calls of 64, where text took
-- 6.0 and a hash 7.0 (one GET and one SET instead of HMGET, HSET and PEXPIRE; no number is parsed).
--
-- Everything is read, then decided, then written: an error on the way leaves nothing half done.
-- What expires was full; the time to live is garbage collection, and never has a meaning.

local SECOND = 1000000
local EXACT = 9007199254740992
local UNREADABLE = -2 * EXACT

local now = tonumber(ARGV[1])
if not now then
    -- Once: up to 7.0 the clock moves while a script runs.
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
        -- A key of another type: this bucket is left to the gateway, the others go on. Any other
        -- error (a missing right) is the call's.
        if string.sub(kept.err, 1, 9) ~= 'WRONGTYPE' then
            return { err = kept.err .. ' (GET)' }
        end
        level = UNREADABLE
    elseif kept and #kept == 24 then
        local was_level, was_tick, was_full = unpack('<ddd', kept)
        -- A value that is no bucket's (NaN fails every comparison) counts as none.
        if was_full >= 1 and was_full <= EXACT and was_full % 1 == 0 and was_level <= was_full
            and was_level >= max(-1000 * was_full, -EXACT) and was_tick >= 0 then
            level, tick = floor(was_level), floor(was_tick)
            if was_full ~= full then
                -- Kept even if nobody takes from it now: its time to live is the old rule's.
                level = max(floor(level / was_full * full), -EXACT)
                moved[bucket] = true
            end
            -- A clock that went back changes nothing. By more than a second it must not keep the
            -- bucket from filling until it is where it was: the bucket fills on from here, which
            -- has to be kept even if nobody takes from it now.
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
