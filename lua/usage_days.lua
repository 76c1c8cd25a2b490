-- Adds what clients used on one day. Any number of gateways add to the same rows. A batch that is sent again is added
-- once: the hash has the number of the last batch of each gateway, and a gateway sends the next one only after the
-- reply to this one.
--
-- KEYS[1] a hash of rows
-- ARGV[1] time at which the hash expires, in milliseconds of Unix time
-- ARGV[2] how many rows may be added to it
-- ARGV[3] id of the gateway's process, 8 bytes
-- ARGV[4] number of the batch
-- ARGV[…] for each row two arguments: its field, and three doubles, packed (little endian): requests, units, overage
--
-- Returns how many rows were added, and how many were not, since there is no room.
--
-- Stored for each row: B 1   d requests   d units   d overage. For each gateway the field '@' and its id: a number.

local key, by, batch = KEYS[1], '@' .. ARGV[3], tonumber(ARGV[4])
if batch <= (tonumber(redis.call('HGET', key, by) or '0') or 0) then
    return { 0, 0 }
end
local room, added, refused = tonumber(ARGV[2]), 0, 0
local fields = { by, ARGV[4] }

for at = 5, #ARGV, 2 do
    local stored = redis.call('HGET', key, ARGV[at])
    local requests, units, overage = struct.unpack('<ddd', ARGV[at + 1])
    if stored or added < room then
        if stored and #stored == 25 and string.byte(stored) == 1 then
            local _, was_requests, was_units, was_overage = struct.unpack('<Bddd', stored)
            requests, units, overage = was_requests + requests, was_units + units, was_overage + overage
        end
        fields[#fields + 1] = ARGV[at]
        fields[#fields + 1] = struct.pack('<Bddd', 1, requests, units, overage)
        added = added + (stored and 0 or 1)
    else
        refused = refused + 1
    end
end

redis.call('HSET', key, unpack(fields))
local time = redis.call('TIME')
local left = tonumber(ARGV[1]) - math.floor((time[1] * 1000000 + time[2]) / 1000)
redis.call('PEXPIRE', key, string.format('%.0f', math.max(left, 1000)))
return { added, refused }
