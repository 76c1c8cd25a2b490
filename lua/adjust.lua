-- Adds units to buckets for an operator (reset or grant): to all of them or to none.
--
-- KEYS    the buckets, each once, in the format of take.lua
-- ARGV[1] current time in microseconds, for tests; empty: the clock of this server
-- ARGV[2] for each bucket, four packed doubles (little endian): units per microsecond, units of a
--         full bucket, units of debt to take off first, units to add
--
-- Returns a flat list of integers: for each bucket its level before, less the debt, and its level
-- after. If a bucket is unreadable (its key is no string): only its number, and no bucket changes.

local SECOND = 1000000
local EXACT = 9007199254740992

local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * SECOND + time[2]
end

local floor, max, min = math.floor, math.max, math.min
local reply, writes = {}, {}

for bucket = 1, #KEYS do
    local rate, full, owed, given = struct.unpack('<dddd', ARGV[2], 32 * bucket - 31)
    local level, tick = full, now
    local kept = redis.pcall('GET', KEYS[bucket])
    if type(kept) == 'table' then
        -- Any error but a key of another type (such as a missing permission) fails the call.
        if string.sub(kept.err, 1, 9) ~= 'WRONGTYPE' then
            return { err = kept.err .. ' (GET)' }
        end
        return { bucket }
    end
    if kept and #kept == 24 then
        local was_level, was_tick, was_full = struct.unpack('<ddd', kept)
        -- A value that is invalid in take.lua is invalid here.
        if was_full >= 1 and was_full <= EXACT and was_full % 1 == 0 and was_level <= was_full
            and was_level >= max(-1000 * was_full, -EXACT) and was_tick >= 0 then
            level, tick = floor(was_level), floor(was_tick)
            if was_full ~= full then
                level = max(floor(level / was_full * full), -EXACT)
            end
            if tick > now + SECOND then
                tick = now
            end
            if tick < now then
                level = level + (now - tick) * rate
                tick = now
            end
            level = min(level, full)
        end
    end
    if owed > 0 then
        level = max(level - owed, -1000 * full, -EXACT)
    end
    local after = min(level + given, full)
    reply[2 * bucket - 1], reply[2 * bucket] = level, after
    local milliseconds = math.ceil((full - after) / rate / 1000) + 1000
    writes[bucket] = { struct.pack('<ddd', after, tick, full), string.format('%.0f', milliseconds) }
end

for bucket = 1, #KEYS do
    redis.call('SET', KEYS[bucket], writes[bucket][1], 'PX', writes[bucket][2])
end

return reply
