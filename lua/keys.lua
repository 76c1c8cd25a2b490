-- Changes the record of a client in the key store, in one step with the index of its keys and with the entry by which
-- gateways notice the change.
--
-- KEYS[1] digests: a hash, the id of the client by the SHA-256 of its key (32 bytes)
-- KEYS[2] records: a hash, the record by the id of the client
-- KEYS[3] ids: a sorted set of all ids, all of score 0, for lists in order
-- KEYS[4] changes: a stream. The number of a change is the first part of its id: 1-0, 2-0, …
-- KEYS[5] used: a hash, when a client was last used, by its id
-- KEYS[6] and following: those of ARGV[8] and ARGV[9]
-- ARGV[1] id of the client
-- ARGV[2] the record as the caller has read it; empty: there was none
-- ARGV[3] the new record; empty: it is removed
-- ARGV[4] a random number, which identifies the change
-- ARGV[5] how many changes the stream keeps
-- ARGV[6] digests that the client has no longer, 32 bytes each
-- ARGV[7] digests that the client has now, 32 bytes each
-- ARGV[8] index into KEYS of the sorted set of the ids of its tenant so far; 0: it has had none, or keeps it
-- ARGV[9] index into KEYS of the set of its tenant now; 0: it has none
--
-- Returns 1; 0 if the record is not as the caller has read it; -1 if another client has one of the keys. Then nothing is
-- changed.

local id, before, after = ARGV[1], ARGV[2], ARGV[3]
local removed, present = ARGV[6], ARGV[7]

if (redis.call('HGET', KEYS[2], id) or '') ~= before then
    return 0
end
for at = 1, #present, 32 do
    local owner = redis.call('HGET', KEYS[1], string.sub(present, at, at + 31))
    -- A record that could not be read may have left its digests when it was removed.
    if owner and owner ~= id and redis.call('HGET', KEYS[2], owner) then
        return -1
    end
end
local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)
local number = 1
if last[1] then
    number = tonumber(string.match(last[1][1], '^%d+')) + 1
end

-- First, because it can fail, and Redis does not undo what a script has done before.
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[5], string.format('%.0f-0', number), 'nonce', ARGV[4], 'digests',
    removed .. present)

for at = 1, #removed, 32 do
    redis.call('HDEL', KEYS[1], string.sub(removed, at, at + 31))
end
for at = 1, #present, 32 do
    redis.call('HSET', KEYS[1], string.sub(present, at, at + 31), id)
end
if after == '' then
    redis.call('HDEL', KEYS[2], id)
    redis.call('ZREM', KEYS[3], id)
    redis.call('HDEL', KEYS[5], id)
else
    redis.call('HSET', KEYS[2], id, after)
    redis.call('ZADD', KEYS[3], 0, id)
end
local left, joined = tonumber(ARGV[8]), tonumber(ARGV[9])
if left > 0 then
    redis.call('ZREM', KEYS[left], id)
end
if joined > 0 then
    redis.call('ZADD', KEYS[joined], 0, id)
end
return 1
