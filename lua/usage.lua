-- Writes what clients used of a quota in one period. Any number of gateways write the same records, each what its last
-- answer of `take.lua` says, in any order and any number of times: the latest answer counts.
--
-- KEYS[1] a hash of records
-- ARGV[1] current time in microseconds, for tests; empty: the clock of this server
-- ARGV[2] time at which the hash expires, in milliseconds of Unix time
-- ARGV[3] how many records may be added to it
-- ARGV[…] for each record three arguments: its field; a change, packed (little endian; d = double, B = 8 bits); and
--         a text about the client, which the script does not read
--           B 1   d units used   d time of the answer that says so   d time of the last request
--           B 2   d units that were granted locally, and whose period ended before they could be taken from the bucket
--                 8 bytes that identify this grant   d time of the last request
--         Times are microseconds of Unix time; that of an answer is by the clock of this server.
--
-- Returns how many records were added, and how many were not, since there is no room.
--
-- Stored for each record: B 1   d units used   d time of the answer   d time of the last request   B number of grants,
-- for each of them 8 bytes that identify it and d its units, and the text.

local HEAD, GRANT, MAX_GRANTS = 26, 16, 255
local ANSWER = 1
-- A clock that went back by up to this many microseconds changes nothing.
local TOLERANCE = 1000000

local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end
local room, added, refused = tonumber(ARGV[3]), 0, 0

for at = 4, #ARGV, 3 do
    local field, change, text = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local stored = redis.call('HGET', KEYS[1], field)
    local used, time, last, count, grants = 0, 0, 0, 0, ''
    local is_new = not stored
    if stored and #stored >= HEAD and string.byte(stored) == 1 then
        local _
        _, used, time, last, count = struct.unpack('<BdddB', stored)
        grants = string.sub(stored, HEAD + 1, HEAD + GRANT * count)
        local was_text = string.sub(stored, HEAD + GRANT * count + 1)
        if string.byte(change) ~= ANSWER then
            text = was_text
        end
    end
    if is_new and added >= room then
        refused = refused + 1
    else
        if string.byte(change) == ANSWER then
            local _, new_used, new_time, new_last = struct.unpack('<Bddd', change)
            if time > now + TOLERANCE then
                -- The clock of this server went back: the stored time would be the latest until it has caught up.
                used, time = new_used, math.min(new_time, now)
            elseif time > now then
                used = math.max(used, new_used)
            else
                new_time = math.min(new_time, now)
                if new_time > time then
                    used, time = new_used, new_time
                elseif new_time == time then
                    -- Of one call, or of none yet.
                    used = math.max(used, new_used)
                end
            end
            last = math.max(last, new_last)
        else
            local _, units, id, new_last = struct.unpack('<Bdc8d', change)
            local is_known = false
            for grant = 1, GRANT * count, GRANT do
                is_known = is_known or string.sub(grants, grant, grant + 7) == id
            end
            if not is_known and count < MAX_GRANTS then
                grants, count = grants .. struct.pack('<c8d', id, units), count + 1
            end
            last = math.max(last, new_last)
        end
        local value = struct.pack('<BdddB', 1, used, time, last, count) .. grants .. text
        if value ~= stored then
            redis.call('HSET', KEYS[1], field, value)
        end
        if is_new then
            added = added + 1
        end
    end
end

local left = tonumber(ARGV[2]) - math.floor(now / 1000)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(left, 1000)))
return { added, refused }
