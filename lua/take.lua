-- Takes tokens from buckets for a batch of requests, all or nothing for each request. Also adjusts
-- buckets for an operator (reset or grant), and reads them without taking (peek).
--
-- Same arithmetic as src/limit/: integers only, every stored value at most 2^53, where a double is
-- exact. Runs unchanged on Redis 6.2, 7.0, 8.x and Valkey 9.
--
-- KEYS    the buckets, each once
-- ARGV[1] current time in microseconds, for tests; empty: the clock of this server
-- ARGV[2] the call, packed (little endian; d = double, H = 16 bits, B = 8 bits):
--           B operation: 1 take, 2 adjust, 3 peek, 5 lease
--           for each bucket   B kind of limit   d d its parameters
--           for each bucket   further parameters, if its kind has them
--           take: groups of equal requests, to the end:
--                             H requests in the group   B charges, then
--             for each charge H bucket (from 1)   d units to take   B 1 for a shadow rule, plus 2 for a
--                             sliding window
--           adjust: for each bucket   d units to add, at most to full
--                   then B flags: 1 to keep the time of this change for an hour: levels that were seen before it do not
--                   count, and what was taken before it is not given back; 2 to fill fixed windows above full
--           peek: for each bucket   d units of a request, for its wait
--           lease: for each bucket   d units wanted   d the largest part of the level, as a divisor   d fewest units,
--                             and twice, of units that were lent in an epoch: d epoch   d spent   d returned
-- ARGV[3] absent, or debts: units granted locally, which are deducted first; packed:
--           for each debt     H bucket (from 1)   d units
-- ARGV[4] absent, or what requests took that another slot of a cluster refused, or that reached no server, to be given
--         back; packed:
--           for each bucket   H bucket (from 1)   d units   d time at which they were taken
--                             d end of the period in which they were taken; 0 unless it is a fixed window
--                             B 1 for a leaky bucket
-- ARGV[5] absent, or levels that the caller saw before another server took over, as upper bounds; packed:
--           for each bucket   H bucket (from 1)   d level at the end of this call
--                             d end of the period that it holds for; 0 unless it is a fixed window
--                             d time at which it was seen
--
-- Returns a flat list of integers: the current time; then
--   take:   for each group
--             the number of its requests that are allowed, the first ones; -1: unreadable bucket
--             for each charge: the level of the bucket after the group
--                              for a shadow rule, the number of requests that took from it;
--                              of a sliding window, the microseconds until it has room for another such
--                              request, and until it is full
--           for each bucket in ARGV[4], the units that were given back, and its level then
--   adjust: for each bucket its level before and after; if any is unreadable, no bucket changes
--   peek:   for each bucket its level; of a sliding window, these two times, too
--   lease:  for each bucket its level after the call, the units that it lends, the epoch, and the microseconds until
--           these units are no longer counted as lent
-- The level of an unreadable bucket, whose key is no string, is -2^54. So is that of a sliding window, if the caller lacks
-- the right to read it; then a take ends with -1.
--
-- A bucket has a level: the units that are available. A level below zero is a debt: requests are
-- denied until the level has risen above zero. Each kind of limit has two functions: one reads a
-- bucket from the stored string and advances it to the current time, one writes it. They use no
-- local variable of this script, since creating a closure over one costs more than the function. Those of
-- sliding windows are created only by calls that have one.
--
-- The script reads all buckets, then decides, then writes, so that an error changes no bucket. A
-- peek writes nothing.

local TAKE, ADJUST, LEASE = 1, 2, 5
local TOKEN_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, CONCURRENCY = 1, 2, 3, 4
-- In the call, a bucket takes 17 bytes. Its second parameter is the level of a full bucket, for all
-- kinds. Further parameters follow those of all buckets.
local RECORD, START, FULL = 17, -15, -6
local UNREADABLE = -2 ^ 54

-- Token bucket. Parameters: units per microsecond, units of a full bucket.
--
-- Stored as three doubles: its level, the time of that level, and the level of a full bucket when it
-- was written. The last gives the unit of the level: after a change of rate or burst, a client
-- keeps its fraction of the bucket. The packed string needs 4.6 us of Redis CPU per check in calls
-- of 64; a text needs 6.0 us and a hash 7.0 us (one GET and one SET instead of HMGET, HSET and
-- PEXPIRE, and no number is parsed).
--
-- Returns the level at `now`, the time of that level, and whether the bucket must be written even if
-- no tokens are taken; only false if gateways have borrowed from the bucket: see leased_buckets.
local function read_token_bucket(stored, now, rate, full)
    if not stored or #stored ~= 24 then
        if stored and #stored == 40 then
            return false
        end
        return full, now, false
    end
    local was_level, was_at, was_full = struct.unpack('<ddd', stored)
    -- An invalid value counts as no value. NaN fails every comparison.
    if not (was_full >= 1 and was_full <= 2 ^ 53 and was_full % 1 == 0 and was_level <= was_full
        and was_level >= -1000 * was_full and was_level >= -2 ^ 53 and was_at >= 0) then
        return full, now, false
    end
    local level, at, changed = math.floor(was_level), math.floor(was_at), false
    if was_full ~= full then
        -- Its time to live is that of the old rule.
        level, changed = math.max(math.floor(level / was_full * full), -2 ^ 53), true
    end
    -- A clock that went back by up to a second changes nothing. If it went back further, the bucket
    -- refills from the current time; otherwise it would not refill until the clock had caught up.
    if at > now + 1000000 then
        at, changed = now, true
    end
    if at < now then
        level, at = level + (now - at) * rate, now
    end
    if level > full then
        level = full
    end
    return level, at, changed
end

-- A key expires only after its bucket is full, which equals no key: the time to live only frees
-- memory.
local function write_token_bucket(key, level, at, rate, full)
    local milliseconds = math.ceil((full - level) / rate / 1000) + 1000
    redis.call('SET', key, struct.pack('<ddd', level, at, full),
        'PX', milliseconds)
end

-- Token buckets from which gateways have borrowed. Parameters: as of a token bucket.
--
-- Stored as a token bucket, and two doubles: the units lent in the epoch of its time, and in the one before. An epoch is
-- two seconds. What is lent is spent before the end of the next epoch. Until then, it and the level are at most a full
-- bucket together, so that what all gateways spend never exceeds the limit in any span of time: docs/leases.md has the
-- proof.
local function leased_buckets(read_token_bucket)
    local EPOCH = 2000000
    local leased = {}

    -- Returns as read_token_bucket, and a table with both numbers of units; nil if both are 0.
    function leased.read(stored, now, rate, full)
        local _, was_at, was_full, lent, before = struct.unpack('<ddddd', stored)
        -- An invalid value counts as no value. NaN fails every comparison.
        if not (was_at >= 0 and was_full >= 1 and was_full <= 2 ^ 53 and lent >= 0 and before >= 0
            and lent + before <= was_full) then
            return full, now, false
        end
        -- As of its own time, in units of the caller.
        local level, at, changed = read_token_bucket(string.sub(stored, 1, 24),
            math.min(math.floor(was_at), now), rate, full)
        lent, before = math.ceil(lent), math.ceil(before)
        if was_full ~= full then
            lent, before = math.ceil(lent / was_full * full), math.ceil(before / was_full * full)
        end
        -- Refills each epoch apart: units that were lent could still be spent until its end, so until then they
        -- leave no room for others.
        local ends = math.floor(at / EPOCH) * EPOCH + EPOCH
        while ends <= now and lent + before > 0 do
            level = math.min(level + (ends - at) * rate, full - lent - before)
            at, before, lent, ends = ends, lent, 0, ends + EPOCH
        end
        level = math.min(level + math.max(now - at, 0) * rate, full - lent - before)
        return level, math.max(at, now), changed, lent + before > 0 and { lent, before } or nil
    end

    -- A key expires only after what is lent has been spent, and its bucket is full then.
    function leased.write(key, level, at, rate, full, lease)
        local milliseconds = math.ceil((full - level) / rate / 1000) + 6000
        redis.call('SET', key, struct.pack('<ddddd', level, at, full, lease[1], lease[2]),
            'PX', milliseconds)
    end

    -- What a call reports of units that were lent in an epoch, and the level afterwards.
    function leased.settle(lease, level, age, spent, returned)
        local lent = math.max(lease[age] - spent, 0)
        local back = math.min(returned, lent)
        lease[age] = lent - back
        return level + back
    end

    -- Units to lend at this level: at most a quarter of a full bucket is lent.
    function leased.lend(lease, level, full, wanted, divisor, least)
        local lends = math.min(wanted, math.floor(level / divisor),
            math.floor(full / 4) - lease[1] - lease[2])
        return lends >= math.max(least, 1) and lends or 0
    end

    -- The epoch of a time, and the microseconds until what is lent in it is no longer counted.
    function leased.epoch(at)
        local epoch = math.floor(at / EPOCH)
        return epoch, (epoch + 2) * EPOCH - at
    end

    return leased
end

-- Fixed window. Parameters: start of the caller's current period, level at the start of a period. Further
-- parameters: end of that period, end of the next one. Times are microseconds of Unix time.
--
-- Stored as three doubles: its level, the end of its period, and minus the level at the start of a period
-- when it was written; then '+', if an operator has granted more than the limit. After a change of the limit, what was
-- used stays used.
--
-- Returns the level at `now`, the end of its period, and whether it must be written even if no tokens are
-- taken.
local function read_fixed_window(stored, now, start, full, finish, next_finish)
    -- The clock of this server chooses the period. `chosen` is nil if the caller's clock is wrong by a
    -- period or more.
    local chosen
    if now >= start and now < finish then
        chosen = finish
    elseif now >= finish and now < next_finish then
        chosen = next_finish
    end
    local level, at, was_full
    local is_above = stored and #stored == 25 and string.byte(stored, 25) == 43
    if stored and (#stored == 24 or is_above) then
        level, at, was_full = struct.unpack('<ddd', stored)
        was_full = -was_full
        -- An invalid value counts as no value. NaN fails every comparison.
        if not (was_full >= 1 and was_full <= 2 ^ 53 and was_full % 1 == 0
            and level <= (is_above and 2 ^ 53 or was_full) and level >= -1000 * was_full and level >= -2 ^ 53 and at >= 0 and at <= 2 ^ 53) then
            at = nil
        end
    end
    -- Only the end of the stored period resets it: once, whatever periods the callers send.
    if not at or now >= math.floor(at) then
        if not chosen then
            local length = math.max(finish - start, 1)
            chosen = start + (math.floor((now - start) / length) + 1) * length
        end
        return full, chosen, false
    end
    level, at = math.floor(level), math.floor(at)
    local was_at = at
    if was_full ~= full then
        level = math.max(math.min(full - was_full + level, 2 ^ 53), -1000 * full, -2 ^ 53)
    end
    -- If the clock went back over the start of the stored period, that period stays.
    if chosen and not (chosen == finish and at == next_finish) then
        at = chosen
    end
    return level, at, at ~= was_at or was_full ~= full
end

-- A key expires only after its period, when it is full again, which equals no key.
local function write_fixed_window(key, level, at, now, full)
    redis.call('SET', key, struct.pack('<ddd', level, at, -full) .. (level > full and '+' or ''),
        'PX', math.ceil((at - now) / 1000) + 1000)
end

-- Requests in flight. Parameters: microseconds of a lease, units that can be held at once. Further parameters: id of the
-- gateway that calls (8 bytes), number of its statement, units that it holds without those that this call takes; below
-- zero: no statement, its units are those of its last one.
--
-- Stored as 'cc1' and 24 bytes for each gateway: its id, its units, the end of its lease in milliseconds, and the
-- number of its last statement. Units are free once the lease ends. A statement that arrives after a later
-- one, such as a call that was given up, changes nothing. So the gateway keeps an entry without units until its lease ends.
--
-- Returns the level at `now`, and a table for write_concurrency with what has to be known there, and whether the bucket
-- must be written even if no units are taken. The table is nil if nothing may be written.
local function read_concurrency(stored, now, lease, full, gateway, number, stated)
    local is_valid = stored and #stored % 24 == 3 and string.sub(stored, 1, 3) == 'cc1'
    local last_end = math.ceil((now + lease) / 1000)
    local own, held, others, is_late = 0, 0, '', false
    local unpack = struct.unpack
    for at = 4, is_valid and #stored or 0, 24 do
        local id, units, ends, last = unpack('<c8I4I6I6', stored, at)
        if ends * 1000 > now then
            if id == gateway then
                own, is_late = units, stated >= 0 and number <= last
                number = math.max(number, last)
            else
                -- The clock went back.
                if ends > last_end + 1000 then
                    ends = last_end
                end
                held = held + units
                others = others .. struct.pack('<c8I4I6I6', id, units, ends, last)
            end
        end
    end
    if is_late then
        return full - held - own
    end
    if stated >= 0 then
        own = stated
    end
    local level = full - held - own
    -- A value of another kind, of a rule whose kind is being changed, is replaced only by a take.
    return level, { level, own, others, gateway, number, last_end },
        stated >= 0 and (is_valid or not stored)
end

-- A key expires once all leases have ended, which equals no key.
local function write_concurrency(key, level, lease, entry)
    local was_level, own, others, gateway, number, last_end = unpack(entry)
    own = own + was_level - level
    if own < 0 then
        -- An operator frees more than this gateway holds.
        local left, kept = -own, ''
        for at = 1, #others, 24 do
            local id, units, ends, last = struct.unpack('<c8I4I6I6', others, at)
            local freed = math.min(units, left)
            left = left - freed
            kept = kept .. struct.pack('<c8I4I6I6', id, units - freed, ends, last)
        end
        own, others = 0, kept
    end
    redis.call('SET', key,
        'cc1' .. struct.pack('<c8I4I6I6', gateway, math.min(own, 2 ^ 32 - 1), last_end, number) .. others,
        'PX', math.ceil(lease / 1000) + 2000)
end

-- Sliding window. Parameters: length of the window in microseconds, number of tokens in it.
--
-- Stored as a head and a ring. The head has five doubles: minus the number of slots of the ring, the slot of the
-- oldest stamp (from 0), the number of stamps, the oldest stamp and the newest. A slot is a double: a stamp, the time at
-- which a token was taken. Stamps that have left the window stay until the bucket is written. The ring is written
-- anew with up to twice the slots when it is too small, and when it is much too large. So a call reads and
-- writes as many stamps as it takes tokens, and finds the oldest stamp in the window in the logarithm of
-- the number that have left it.
--
-- A stamp is never before an older one: if the clock went back by up to a second, new stamps are those of the
-- newest. If it went back further, later stamps count as taken at the current time.
local function sliding_windows(now)
    local HEAD, SLOT, MIN_SLOTS = 40, 8, 8
    local floor, max, min, call, pcall = math.floor, math.max, math.min, redis.call, redis.pcall
    local pack, unpack = struct.pack, struct.unpack

    -- The stamps of the slots `from` to `from + count - 1`, which are within the ring, as a string.
    local function slots(log, from, count)
        local start = HEAD + SLOT * from
        return call('GETRANGE', log.key, start, start + SLOT * count - 1)
    end

    -- The stamp at a place, from 0 for the oldest. One that no gateway writes counts as the newest.
    local function stamp(log, place)
        if place == 0 then
            return log.oldest
        elseif place == log.count - 1 then
            return log.newest
        end
        local text = slots(log, (log.first + place) % log.slots, 1)
        local at = #text == SLOT and unpack('<d', text)
        if at and at >= log.oldest and at <= log.newest then
            return at
        end
        return log.newest
    end

    -- Forgets the stamps that have left the window, and all beyond the limit.
    local function advance(log)
        local edge, left, oldest = now - log.window, 0, log.oldest
        if log.newest <= edge then
            left = log.count
        elseif oldest <= edge then
            -- `left` has left the window, `inside` has not. Searches near the oldest first.
            local inside, step = log.count - 1, 1
            oldest = log.newest
            while inside - left > 1 do
                local middle = min(left + step, floor((left + inside) / 2))
                local at = stamp(log, middle)
                if at <= edge then
                    left, step = middle, 2 * step
                else
                    inside, oldest, step = middle, at, log.count
                end
            end
            left = inside
        end
        if log.count - left > log.limit then
            left = log.count - log.limit
            oldest = stamp(log, left)
        end
        log.first, log.count, log.oldest = (log.first + left) % log.slots, log.count - left, oldest
    end

    -- With the level changed to `level`: numbers of the stamps that stay, the newest ones, and of those to add.
    local function split(log, level)
        local stamps = log.limit - level
        local added = min(log.owed + max(log.level - level, 0), stamps)
        return stamps - added, added
    end

    local sliding = {}

    -- Reads a bucket from its head. Returns its level, and whether it must be written even if no tokens are taken.
    function sliding.read(log, head)
        log.slots, log.first, log.count, log.oldest, log.newest = 1, 0, 0, 0, 0
        log.owed, log.rewrite = 0, true
        if #head == HEAD then
            local slots, first, count, oldest, newest = unpack('<ddddd', head)
            slots = -slots
            -- An invalid value counts as no value. NaN fails every comparison.
            if slots >= 1 and slots <= 2 ^ 20 and slots % 1 == 0 and first >= 0 and first < slots
                and first % 1 == 0 and count >= 0 and count <= slots and count % 1 == 0
                and oldest >= 0 and oldest <= newest and newest <= 2 ^ 53
                and (count ~= 1 or oldest == newest) then
                log.slots, log.first, log.count, log.rewrite = slots, first, count, false
                log.oldest, log.newest = floor(oldest), floor(newest)
            end
        end
        local is_ahead = log.count > 0 and log.newest > now + 1000000
        if is_ahead then
            log.oldest, log.newest, log.rewrite = min(log.oldest, now), now, true
        end
        if log.count > 0 then
            advance(log)
        end
        log.stamp = log.count > 0 and max(now, log.newest) or now
        log.level = log.limit - log.count
        return log.level, is_ahead
    end

    -- Adds the stamps of a debt in the place of the oldest ones. Returns the level.
    function sliding.settle(log, units)
        log.owed = min(log.owed + floor(units), log.limit)
        log.level = log.limit - min(log.count + log.owed, log.limit)
        return log.level
    end

    -- Drops the oldest stamps. Returns the level.
    function sliding.give_back(log, units)
        local dropped = min(floor(units), log.count)
        if dropped < log.count then
            log.oldest = stamp(log, dropped)
        end
        log.first, log.count = (log.first + dropped) % log.slots, log.count - dropped
        log.level = log.limit - min(log.count + log.owed, log.limit)
        return log.level
    end

    -- At this level: microseconds until there is room for `units`, and until the bucket is full.
    function sliding.times(log, level, units)
        local kept, added = split(log, level)
        local newest = added > 0 and log.stamp or log.newest
        local left = kept + added > 0 and newest - now + log.window or 0
        local missing, wait = min(units, log.limit) - level, 0
        if missing > kept then
            wait = log.stamp - now + log.window
        elseif missing > 0 then
            wait = stamp(log, log.count - kept + missing - 1) - now + log.window
        end
        -- Below zero only if stamps are cut off or not in order, which no gateway writes.
        return max(wait, 0), max(left, 0)
    end

    -- The newest `kept` stamps, as a string.
    local function kept_stamps(log, kept)
        local from = (log.first + log.count - kept) % log.slots
        local ahead = min(kept, log.slots - from)
        local stamps = ahead > 0 and slots(log, from, ahead) or ''
        if ahead < kept then
            stamps = stamps .. slots(log, 0, kept - ahead)
        end
        return stamps
    end

    -- Writes the whole string, with as many slots as are needed soon.
    local function rewrite(log, kept, added, milliseconds)
        local stamps = {}
        local old = kept_stamps(log, kept)
        for place = 1, kept do
            local text = string.sub(old, SLOT * place - SLOT + 1, SLOT * place)
            local at = #text == SLOT and unpack('<d', text)
            if not (at and at >= 0 and at <= log.newest) then
                at = log.newest
            end
            stamps[place] = pack('<d', at)
        end
        local count, slots = kept + added, MIN_SLOTS
        while slots < count do
            slots = 2 * slots
        end
        slots = max(min(slots, log.limit), 1)
        local oldest = kept > 0 and unpack('<d', stamps[1]) or added > 0 and log.stamp or 0
        local newest = added > 0 and log.stamp or kept > 0 and log.newest or 0
        call('SET', log.key, pack('<ddddd', -slots, 0, count, oldest, newest) .. table.concat(stamps)
            .. string.rep(pack('<d', log.stamp), added) .. string.rep('\0', SLOT * (slots - count)),
            'PX', milliseconds)
    end

    -- Writes a bucket with this level. Its key expires once its stamps have left the window, which equals no key.
    function sliding.write(log, level)
        local kept, added = split(log, level)
        local count = kept + added
        local newest = added > 0 and log.stamp or log.newest
        local left = count > 0 and newest - now + log.window or 0
        local milliseconds = math.ceil(left / 1000) + 1000
        if log.rewrite or count == 0 or count > log.slots
            or log.slots > MIN_SLOTS and 8 * count <= log.slots then
            return rewrite(log, kept, added, milliseconds)
        end
        local dropped = log.count - kept
        local oldest = kept > 0 and stamp(log, dropped) or log.stamp
        local first = (log.first + dropped) % log.slots
        local from = (first + kept) % log.slots
        local ahead = min(added, log.slots - from)
        local text = pack('<d', log.stamp)
        local function is_done(reply)
            return type(reply) ~= 'table'
        end
        -- Without a right to do so, the whole string is written: this has changed no slot of a stamp that is kept.
        local done = (ahead == 0
                or is_done(pcall('SETRANGE', log.key, HEAD + SLOT * from, string.rep(text, ahead))))
            and (added == ahead
                or is_done(pcall('SETRANGE', log.key, HEAD, string.rep(text, added - ahead))))
            and is_done(pcall('SETRANGE', log.key, 0,
                pack('<ddddd', -log.slots, first, count, oldest, newest)))
            and is_done(pcall('PEXPIRE', log.key, milliseconds))
        if not done then
            rewrite(log, kept, added, milliseconds)
        end
    end

    return sliding
end

local now = tonumber(ARGV[1])
if not now then
    -- Read once: up to Redis 7.0 the clock advances while a script runs.
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
end

local floor, max, unpack, get = math.floor, math.max, struct.unpack, redis.pcall
local keys, call = KEYS, ARGV[2]
local operation, position = string.byte(call), 2
-- By bucket: its level; the time of the level, if that is after the current time, or the end of its
-- period; whether it must be written. Values that are rarely needed again are unpacked again: a table costs more.
-- `{ nil }` has room for one element: to grow a table costs as much as to create it, and most calls have one bucket.
local levels, later, moved = { nil }, nil, { nil }
-- By bucket of requests in flight: its entries; nil if nothing may be written.
local entries
-- Of sliding windows: their functions, and the logs by bucket.
local sliding, logs = nil, nil
-- Of buckets from which gateways have borrowed: their functions, and by bucket the units lent.
local leased, leases = nil, nil
-- Whether the caller lacks the right to read a sliding window.
local lacks_right = false
-- Position of the further parameters of the next bucket that has them.
local further = position + RECORD * #keys

for bucket = 1, #keys do
    local kind, first, second
    kind, first, second, position = unpack('<Bdd', call, position)
    local stored
    if kind == SLIDING_WINDOW then
        -- Only the head: the ring can be long.
        stored = get('GETRANGE', keys[bucket], 0, 39)
    else
        stored = get('GET', keys[bucket])
    end
    if stored and #stored ~= 24 and type(stored) == 'table' then
        -- A key of another type, or a right that only sliding windows need is missing: the gateway decides on this
        -- bucket, and the script on the others. Any other error fails the call.
        -- Servers before 7.0, those of 7 and those of 8 say it in other words.
        local text = stored.err
        if kind == SLIDING_WINDOW
            and (string.find(text, 'NOPERM', 1, true) or string.find(text, "can't run", 1, true)
                or string.find(text, 'ACL failure', 1, true)) then
            lacks_right = true
        elseif string.sub(text, 1, 9) ~= 'WRONGTYPE' then
            return { err = text .. (kind == SLIDING_WINDOW and ' (GETRANGE)' or ' (GET)') }
        end
        levels[bucket] = UNREADABLE
        if kind == FIXED_WINDOW then
            further = further + 16
        elseif kind == CONCURRENCY then
            further = further + 24
        end
    elseif kind == TOKEN_BUCKET then
        local level, at, changed = read_token_bucket(stored, now, first, second)
        if not level then
            leased, leases = leased or leased_buckets(read_token_bucket), leases or {}
            level, at, changed, leases[bucket] = leased.read(stored, now, first, second)
        end
        levels[bucket] = level
        if at > now then
            later = later or { nil }
            later[bucket] = at
        end
        if changed then
            moved[bucket] = true
        end
    elseif kind == FIXED_WINDOW then
        local finish, next_finish
        finish, next_finish, further = unpack('<dd', call, further)
        local level, at, changed = read_fixed_window(stored, now, first, second, finish, next_finish)
        levels[bucket] = level
        later = later or { nil }
        later[bucket] = at
        if changed then
            moved[bucket] = true
        end
    elseif kind == CONCURRENCY then
        local gateway, number, stated, level, entry, changed
        gateway, number, stated, further = unpack('<c8dd', call, further)
        level, entry, changed = read_concurrency(stored, now, first, second, gateway, number, stated)
        levels[bucket] = level
        entries = entries or {}
        entries[bucket] = entry
        if changed then
            moved[bucket] = true
        end
    elseif kind == SLIDING_WINDOW then
        sliding, logs = sliding or sliding_windows(now), logs or {}
        local log = { key = keys[bucket], window = first, limit = second }
        logs[bucket] = log
        local changed
        levels[bucket], changed = sliding.read(log, stored)
        if changed then
            moved[bucket] = true
        end
    end
end
position = further

-- A server that took over may lack what its predecessor had counted. Before debts, which the caller has not seen.
local claims, at = ARGV[5], 1
while claims and at <= #claims do
    local bucket, claimed, period_end, seen_at
    bucket, claimed, period_end, seen_at, at = unpack('<Hddd', claims, at)
    local level = levels[bucket]
    local lowers = level ~= UNREADABLE and claimed < level
        and (period_end == 0 or later and later[bucket] == period_end)
    if lowers then
        -- A reset or a grant by an operator counts, whatever was seen before it. Without this key, none was made.
        local adjusted_at = get('GET', keys[bucket] .. ':~adjusted')
        lowers = type(adjusted_at) ~= 'string' or seen_at > (tonumber(adjusted_at) or 0)
    end
    if lowers then
        if logs and logs[bucket] then
            levels[bucket] = sliding.settle(logs[bucket], level - claimed)
        else
            levels[bucket] = claimed
        end
        moved[bucket] = true
    end
end

local debts = ARGV[3] or ''
at = 1
while at <= #debts do
    local bucket, units
    bucket, units, at = unpack('<Hd', debts, at)
    if levels[bucket] ~= UNREADABLE then
        if logs and logs[bucket] then
            levels[bucket] = sliding.settle(logs[bucket], units)
        else
            local full = unpack('<d', call, FULL + RECORD * bucket)
            levels[bucket] = max(levels[bucket] - units, -1000 * full, -2 ^ 53)
        end
        moved[bucket] = true
    end
end

-- Gives back what refused requests took, at most what keeps the limits exact. Since it was taken, a token bucket may
-- have been full without these requests, and what it refilled in that time would have been lost. A leaky bucket gets
-- tokens back only if it is full then: otherwise other requests wait already because of these. A fixed window
-- counts what was taken in its period. From a sliding window, the oldest tokens are dropped: they leave it earlier
-- than those that were taken, which must still be in it. After a reset or a grant by an operator, no bucket gets
-- anything back that was taken before: it is as full as it would be without these requests.
local returned, given = ARGV[4], nil
if returned and returned ~= '' then
    at, given = 1, {}
    while at <= #returned do
        local bucket, units, taken_at, period_end, leaky
        bucket, units, taken_at, period_end, leaky, at = unpack('<HdddB', returned, at)
        local kind, first, full = unpack('<Bdd', call, START + RECORD * bucket)
        local level = levels[bucket]
        local adjusted_at = get('GET', keys[bucket] .. ':~adjusted')
        local is_void = type(adjusted_at) == 'string' and taken_at <= (tonumber(adjusted_at) or 0)
        if level == UNREADABLE or is_void then
            units = 0
        elseif kind == TOKEN_BUCKET then
            -- If the clock went back since, the time of the bucket counts, which has not.
            local elapsed = (later and later[bucket] or now) - taken_at
            units = elapsed >= 0 and units - first * elapsed or 0
        elseif kind == FIXED_WINDOW then
            units = later[bucket] == period_end and units or 0
        elseif kind == SLIDING_WINDOW then
            if taken_at > now - first then
                levels[bucket], moved[bucket] = sliding.give_back(logs[bucket], units), true
            end
            units = 0
        else
            units = 0
        end
        if units > 0 then
            if leases and leases[bucket] then
                full = full - leases[bucket][1] - leases[bucket][2]
            end
            if leaky == 0 or level + units >= full then
                levels[bucket], moved[bucket] = max(math.min(level + units, full), level), true
            end
        end
        given[#given + 1] = levels[bucket] - level
        given[#given + 1] = levels[bucket]
    end
end

local reply, length = { now, nil, nil, nil }, 1
if operation == TAKE then
    while position <= #call do
        local passed, charges
        passed, charges, position = unpack('<HB', call, position)
        local first = position
        -- Of the last charge read: those of a single charge are not read twice.
        local bucket, units, shadow
        for _ = 1, charges do
            bucket, units, shadow, position = unpack('<HdB', call, position)
            if shadow == 0 or shadow == 2 then
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
        if charges > 1 then
            position = first
        end
        for _ = 1, charges do
            if charges > 1 then
                bucket, units, shadow, position = unpack('<HdB', call, position)
            end
            local level, took = levels[bucket], passed
            if shadow ~= 0 and shadow ~= 2 and level < took * units then
                took = max(floor(level / units), 0)
            end
            if took > 0 then
                level = level - took * units
                levels[bucket], moved[bucket] = level, true
            end
            length = length + 1
            reply[length] = level
            if shadow ~= 0 then
                if shadow ~= 2 then
                    length = length + 1
                    reply[length] = took
                end
                if shadow >= 2 and level ~= UNREADABLE then
                    reply[length + 1], reply[length + 2] = sliding.times(logs[bucket], level, units)
                    length = length + 2
                end
            end
        end
    end
    for index = 1, given and #given or 0 do
        length = length + 1
        reply[length] = given[index]
    end
    if lacks_right then
        reply[length + 1] = -1
    end
elseif operation == ADJUST then
    local readable = true
    for bucket = 1, #keys do
        readable = readable and levels[bucket] ~= UNREADABLE
    end
    local flags = string.byte(call, position + 8 * #keys) or 0
    for bucket = 1, #keys do
        local before, units = levels[bucket]
        units, position = unpack('<d', call, position)
        if readable then
            local kind, _, full = unpack('<Bdd', call, START + RECORD * bucket)
            if kind == FIXED_WINDOW and flags >= 2 then
                full = 2 ^ 53
            end
            if leases and leases[bucket] then
                full = full - leases[bucket][1] - leases[bucket][2]
            end
            levels[bucket], moved[bucket] = max(math.min(before + units, full), before), true
        end
        reply[2 * bucket], reply[2 * bucket + 1] = before, levels[bucket]
    end
    if not readable then
        return reply
    end
    if flags % 2 == 1 then
        for bucket = 1, #keys do
            -- An error, such as in a slot that is being moved, must not undo the change.
            get('SET', keys[bucket] .. ':~adjusted', string.format('%.0f', now), 'PX', '3660000')
        end
    end
elseif operation == LEASE then
    leased, leases = leased or leased_buckets(read_token_bucket), leases or {}
    for bucket = 1, #keys do
        local level, lends = levels[bucket], 0
        local epoch, left = leased.epoch(later and later[bucket] or now)
        local wanted, divisor, least
        wanted, divisor, least, position = unpack('<ddd', call, position)
        local lease = leases[bucket] or { 0, 0 }
        for _ = 1, 2 do
            local lent_in, spent, returned
            lent_in, spent, returned, position = unpack('<ddd', call, position)
            if level ~= UNREADABLE and (lent_in == epoch or lent_in == epoch - 1) then
                level = leased.settle(lease, level, epoch - lent_in + 1, spent, returned)
                moved[bucket] = true
            end
        end
        if level ~= UNREADABLE then
            local full = unpack('<d', call, FULL + RECORD * bucket)
            lends = leased.lend(lease, level, full, wanted, divisor, least)
            lease[1], level = lease[1] + lends, level - lends
            leases[bucket] = lease[1] + lease[2] > 0 and lease or nil
            levels[bucket], moved[bucket] = level, moved[bucket] or lends > 0
        end
        reply[length + 1], reply[length + 2] = level, lends
        reply[length + 3], reply[length + 4] = epoch, left
        length = length + 4
    end
else
    for bucket = 1, #keys do
        local units
        units, position = unpack('<d', call, position)
        length = length + 1
        reply[length] = levels[bucket]
        if logs and logs[bucket] then
            reply[length + 1], reply[length + 2] = sliding.times(logs[bucket], levels[bucket], units)
            length = length + 2
        end
    end
    return reply
end

for bucket = 1, #keys do
    if moved[bucket] then
        local kind, first, second = unpack('<Bdd', call, START + RECORD * bucket)
        local level, at = levels[bucket], later and later[bucket] or now
        if leases and leases[bucket] then
            leased.write(keys[bucket], level, at, first, second, leases[bucket])
        elseif kind == TOKEN_BUCKET then
            write_token_bucket(keys[bucket], level, at, first, second)
        elseif kind == FIXED_WINDOW then
            write_fixed_window(keys[bucket], level, at, now, second)
        elseif kind == CONCURRENCY and entries[bucket] then
            write_concurrency(keys[bucket], level, first, entries[bucket])
        elseif kind == SLIDING_WINDOW then
            sliding.write(logs[bucket], level)
        end
    end
end

return reply
