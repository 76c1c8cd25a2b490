-- Reads changes of the key store, and records by the digests of their keys, as of one instant. So what a gateway knows of
-- a record is never newer than the changes that it has seen, and a rollback of the data shows in the changes.
--
-- KEYS[1] changes, KEYS[2] digests, KEYS[3] records: see keys.lua
-- ARGV[1] id of the first change to read; empty: only the last one
-- ARGV[2] how many changes to read at most
-- ARGV[3] and following: digests, 32 bytes each
--
-- Returns the changes, and the records in the order of the digests, empty where there is none. An error on a replica.

-- Changes nothing, since no record has an empty id. But a replica refuses it: a gateway whose connection was not cut when
-- its master became a replica would read old records. Other errors, such as that of a full disk, do not prevent reads.
local refused = redis.pcall('HDEL', KEYS[3], '')
if type(refused) == 'table' and refused.err and string.find(refused.err, 'READONLY', 1, true) then
    return refused
end

local changes
if ARGV[1] == '' then
    changes = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
else
    changes = redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
end
local found = {}
for at = 3, #ARGV do
    local id = redis.call('HGET', KEYS[2], ARGV[at])
    found[at - 2] = id and redis.call('HGET', KEYS[3], id) or ''
end
return { changes, found }
