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
--         Times are microseconds of Unix time; that of an answer is by the clock of the server that has the bucket: in
--         a cluster, possibly another one than this, whose clock may differ from this one's.
--
-- Returns how many records were added, and how many were not, since there is no room.
--
-- Stored for each record: B 1   d units used   d time of the answer   d time of the last request   B number of grants,
-- for each of them 8 bytes that identify it and d its units, and the text of the latest answer.

local HEAD, GRANT, MAX_GRANTS = 26, 16, 255
local ANSWER = 1
-- A clock that went back by up to this many microseconds makes no answer replace a larger number.
local TOLERANCE = 1000000
-- No clock is ahead of this server's by more than this many microseconds.
local MAX_AHEAD = 60000000

-- How a new answer relates to the stored one, by their times: 'later', 'earlier', or 'same': then the larger number
-- counts. A stored time after the current one has two possible causes. The clock of the bucket's server is ahead of this
-- one: then the new time is usually after the current one, too. Or a clock went back since: then the stored time would be
-- the latest until the clock has caught up. If the server of the bucket is replaced by one whose clock is slow by more
-- than the replacement took, its answers count once its clock has caught up.
local function relation(new_time, time, now)
    if new_time > time or time > now + MAX_AHEAD then
        return 'later'
    elseif new_time == time then
        return 'same'
    elseif time <= now or new_time > now then
        return 'earlier'
    end
    return time > now + TOLERANCE and 'later' or 'same'
end

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
    local is_new, was_text = not stored, text
    if stored and #stored >= HEAD and string.byte(stored) == 1 then
        local _
        _, used, time, last, count = struct.unpack('<BdddB', stored)
        grants = string.sub(stored, HEAD + 1, HEAD + GRANT * count)
        was_text = string.sub(stored, HEAD + GRANT * count + 1)
        if string.byte(change) ~= ANSWER then
            text = was_text
        end
    end
    if is_new and added >= room then
        refused = refused + 1
    else
        if string.byte(change) == ANSWER then
            local _, new_used, new_time, new_last = struct.unpack('<Bddd', change)
            local order = relation(new_time, time, now)
            if order == 'later' then
                used, time = new_used, new_time
            elseif order == 'same' then
                used = math.max(used, new_used)
            else
                -- The plan and the limit may be those before a change.
                text = was_text
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
