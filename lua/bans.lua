-- Counts refusals of clients, begins and ends bans, and returns which bans have changed. Any number of gateways send what
-- they have refused; the clock of this server counts. Same arithmetic as src/limit/ban.rs. Runs unchanged on Redis 6.2, 7.0,
-- 8.x and Valkey 9.
--
-- KEYS[1] records: a hash, the record of a ban by the id of its bucket (32 digits); beside them `version`, the number of
--         changes so far, and `epoch`, which is another one after changes were lost
-- KEYS[2] changes: a sorted set, '<version>:<id>' of the last change of each record, all of score 0
-- KEYS[3] ends: a sorted set, '<milliseconds>:<id>' at which each record is forgotten, all of score 0
-- KEYS[4] and following: refusals of the client of each update, in the order of the updates
-- ARGV[1] current time in microseconds, for tests; empty: the clock of this server
-- ARGV[2] the epoch that the caller knows, and ARGV[3] the number of the last change that it knows; 0: none
-- ARGV[4] largest number of changes in the reply
-- ARGV[5] largest number of records; beyond it, those that are forgotten first are removed
-- ARGV[6] updates, packed (little endian; d = double, B = 8 bits, s4 = a text after its length in 32 bits):
--           B operation   c32 id   d d d d d d, as follows   s4 about, which the script does not read
--           1 refusals: their number; after, a tenth of within, for, grow, max of the rule (microseconds)
--           2 a ban that began while this server could not be called: microseconds that are left, bans in a row, -, -, -, max
--           3 a ban by an operator: the same; it may be shorter than before
--           4 the end of a ban by an operator
--
-- Returns the current time, the epoch, the number of the last change in the reply, 1 if there are more changes, 1 if the
-- caller's epoch or number is not of this server; then for each change
--   id, microseconds that are left (0 or less: it has ended), bans in a row, microseconds until it is forgotten, about
--
-- A record: d version   d end   d bans in a row   d when it is forgotten (microseconds), and about.
-- Refusals: d number of the tenth that the last count is about   I4 for each of the last ten tenths.

local TENTHS, DAY, LIFETIME_MS = 10, 86400000000, '6048000000'
local COUNT, RESTORE, BAN, LIFT = 1, 2, 3, 4
local records, changes, ends_of = KEYS[1], KEYS[2], KEYS[3]
local floor, max, min = math.floor, math.max, math.min

local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end

local function number(value)
    return string.format('%.0f', value)
end

-- A member of a sorted set, which is in the order of the number.
local function member(value, id)
    return string.format('%016.0f:%s', max(value, 0), id)
end

-- End, bans in a row, when it is forgotten, about and version of a record; zeros without one.
local function read(id)
    local stored = redis.call('HGET', records, id)
    if not stored or #stored < 32 then
        return 0, 0, 0, '', 0
    end
    local version, ends, bans, forgotten = struct.unpack('<dddd', stored)
    return ends, bans, forgotten, string.sub(stored, 33), version
end

local function remove(id)
    local _, _, forgotten, _, version = read(id)
    redis.call('HDEL', records, id)
    redis.call('ZREM', changes, member(version, id))
    redis.call('ZREM', ends_of, member(floor(forgotten / 1000), id))
end

local function write(id, ends, bans, forgotten, about)
    remove(id)
    local version = redis.call('HINCRBY', records, 'version', 1)
    redis.call('HSET', records, id, struct.pack('<dddd', version, ends, bans, forgotten) .. about)
    redis.call('ZADD', changes, 0, member(version, id))
    redis.call('ZADD', ends_of, 0, member(floor(forgotten / 1000), id))
    for _, key in ipairs({ records, changes, ends_of }) do
        redis.call('PEXPIRE', key, LIFETIME_MS)
    end
end

-- Counts refusals. Returns whether there are as many as a ban needs.
local function count(key, refusals, after, tenth_us)
    local tenth, counts, was = floor(now / tenth_us), {}, nil
    local stored = redis.call('GET', key)
    if stored and #stored == 8 + 4 * TENTHS then
        counts = { struct.unpack('<dI4I4I4I4I4I4I4I4I4I4', stored) }
        was = table.remove(counts, 1)
        -- The position after the last value.
        counts[TENTHS + 1] = nil
    end
    local passed = was and min(max(tenth - was, 0), TENTHS) or TENTHS
    local sum, kept = 0, {}
    for at = 1, TENTHS do
        kept[at] = at + passed <= TENTHS and counts[at + passed] or 0
    end
    kept[TENTHS] = min(kept[TENTHS] + refusals, after)
    for at = 1, TENTHS do
        sum = sum + kept[at]
    end
    if sum >= after then
        redis.call('SET', key, '', 'PX', '1')
        return true
    end
    redis.call('SET', key, struct.pack('<dI4I4I4I4I4I4I4I4I4I4', tenth, unpack(kept)),
        'PX', number(math.ceil(tenth_us * TENTHS / 1000) + 1000))
    return false
end

local function begin(id, first, grow, longest, about)
    local ends, bans = read(id)
    bans = (bans > 0 and now - ends <= longest) and bans + 1 or 1
    local length = min(first, longest)
    for _ = 2, bans do
        if length >= longest or grow <= 1 then
            break
        end
        length = min(length * grow, longest)
    end
    write(id, now + length, bans, now + length + longest, about)
end

local epoch = redis.call('HGET', records, 'epoch')
if not epoch then
    epoch = number(now)
    redis.call('HSET', records, 'epoch', epoch)
end

local position, updates, index = 1, ARGV[6], 3
while position <= #updates do
    local operation, id, a, b, c, d, e, f, about
    operation, id, a, b, c, d, e, f, about, position = struct.unpack('<Bc32ddddddI4c0', updates, position)
    index = index + 1
    local ends, bans = read(id)
    if operation == COUNT then
        if ends <= now and count(KEYS[index], a, b, c) then
            begin(id, d, e, f, about)
        end
    elseif operation == RESTORE then
        if now + a > ends then
            write(id, now + a, max(bans, b), now + a + f, about)
        end
    elseif operation == BAN then
        redis.call('SET', KEYS[index], '', 'PX', '1')
        write(id, now + a, max(bans, 1), now + a + f, about)
    elseif operation == LIFT then
        redis.call('SET', KEYS[index], '', 'PX', '1')
        write(id, now, 0, now + DAY, about)
    end
end

-- Records whose time is over, and those beyond the largest number.
local old = redis.call('ZRANGEBYLEX', ends_of, '-', '(' .. member(floor(now / 1000), ''), 'LIMIT', 0, 64)
local excess = redis.call('ZCARD', ends_of) - #old - tonumber(ARGV[5])
if excess > 0 then
    old = redis.call('ZRANGEBYLEX', ends_of, '-', '+', 'LIMIT', 0, #old + min(excess, 256))
end
for _, one in ipairs(old) do
    local id = string.sub(one, -32)
    local _, _, forgotten = read(id)
    if forgotten > 0 then
        remove(id)
    end
    redis.call('ZREM', ends_of, one)
end

local last, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local top = tonumber(redis.call('HGET', records, 'version') or '0')
if epoch == ARGV[2] and last > top then
    -- Changes were lost, as in a failover: other callers know them, too, also once there are as many again.
    epoch = number(now)
    redis.call('HSET', records, 'epoch', epoch)
end
local is_other = epoch ~= ARGV[2] and 1 or 0
if is_other == 1 then
    last = 0
end
local found = redis.call('ZRANGEBYLEX', changes, '[' .. member(last + 1, ''), '+', 'LIMIT', 0, most)
local reply = { now, tonumber(epoch), 0, #found == most and 1 or 0, is_other }
for _, one in ipairs(found) do
    local id = string.sub(one, -32)
    local ends, bans, forgotten, about = read(id)
    last = max(last, tonumber(string.sub(one, 1, 16)))
    for _, value in ipairs({ id, ends - now, bans, max(forgotten - now, 0), about }) do
        reply[#reply + 1] = value
    end
end
reply[3] = #found < most and max(last, top) or last
return reply
