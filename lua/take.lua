-- Takes tokens from buckets for a batch of requests, all or nothing for each request. Also adjusts
-- buckets for an operator (reset or grant), and reads them without taking (peek).
--
-- Same arithmetic as src/limit/: integers only, every stored value at most 2^53, where a double is
-- exact. Runs unchanged on Redis 6.2, 7.0, 8.x and Valkey 9.
--
-- KEYS    the buckets, each once
-- ARGV[1] empty, or `<` and the latest time at which this call may run, by the clock of this server: after it, nothing
--         changes, and the reply is the error EXPIRED with the current time. The caller has decided by itself then.
--         In tests the current time. All in microseconds
-- ARGV[2] the call, packed (little endian; d = double, H = 16 bits, B = 8 bits):
--           B operation: 1 take, 2 adjust, 3 peek, 5 lease, 6 top-up, 7 lapsed
--           for each bucket   B kind of limit   d d its parameters
--           for each bucket   further parameters, if its kind has them
--           take: groups of equal requests, to the end:
--                             H requests in the group   B charges, then
--             for each charge H bucket (from 1)   d units to take   B 1 for a shadow rule, plus 2 for a
--                             sliding window; 4 for a fixed window that grants more than its level
--           adjust: for each bucket   d units to add, at most to full
--                   then B flags: 1 to keep the time of this change for an hour: levels that were seen before it do not
--                   count, and what was taken before it is not given back; 2 to fill fixed windows above full
--           peek: for each bucket   d units of a request, for its wait
--           lease: for each bucket   d units wanted   d the largest part of the level, as a divisor   d fewest units,
--                             and twice, of units that were lent in an epoch: d epoch   d spent   d returned
--           top-up, of one fixed window: B 0 to list them, 1 to add one, 2 to take one away   d units of the one to add
--                             d its expiry   d its id   then to the end a text that is kept with it
--           lapsed, of fixed windows: for each bucket   d units that were granted locally in a period that has ended
--                             d the end of that period   d a random number: a debt with a number that was seen before is
--                             ignored
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
--   peek:   for each bucket its level; of a sliding window, these two times, too; of a fixed window, the units that are
--           left of its top-ups, and when the first of them expires, 0 without any
--   lease:  for each bucket its level after the call, the units that it lends, the epoch, and the microseconds until
--           these units are no longer counted as lent
--   top-up: 0; 1 if there are too many; 2 if they are too large; 3 if there is none with this id; 4 if one with this
--           id was added before; -1 if the bucket is unreadable. Then its level before and after; with 4 the text of
--           that one; and for each that can be used its id, the units that are left, its expiry, and its text. A text
--           is its length, and numbers of 6 bytes
--   lapsed: for each bucket the units that were taken from its top-ups
-- The level of an unreadable bucket, whose key is no string, is -2^54. So is that of a sliding window, if the caller lacks
-- the right to read it; then a take ends with -1.
--
-- A bucket has a level: the units that are available. A level below zero is a debt: requests are
-- denied until the level has risen above zero.
--
-- The script reads all buckets, then changes their levels, then writes them, so that an error
-- changes no bucket. A peek writes nothing. The end of this file has these steps.
--
-- Each kind of limit has two functions, with the same parameters for all kinds:
--   read(stored, now, first, full, call, further, key, index)
--           advances a bucket to the current time. `first` and `full` are its parameters: the
--           second one is the level of a full bucket, for all kinds. `further` is the position of
--           its further parameters in the call. Returns its level; whether it must be written even
--           if no units are taken; and the end of its period, or the time of its level if that is
--           after the current time, or nil
--   write(key, level, at, first, full, now, index)
--           stores a bucket. `at` is the time that read has returned, or the current one
-- What else a kind has to know of a bucket from read to write, it keeps by `index`, the number of
-- the bucket. In the call, the kind of a bucket is at 17 * index - 15, its second parameter at
-- 17 * index - 6.
--
-- Functions are created each time that the script runs. One takes about 1 % of a call, and twice
-- that if it uses a local variable of the script; a table of functions for each kind would take 4 %.
-- So functions get what they need as parameters, and those that not all calls need are created by
-- another function, when a call needs them.

-- Token bucket. Parameters: units per microsecond, units of a full bucket.
--
-- Stored as three doubles: its level, the time of that level, and the level of a full bucket when
-- it was written. The last gives the unit of the level: after a change of rate or burst, a client
-- keeps its fraction of the bucket. The packed string needs 4.6 us of Redis CPU per check in calls
-- of 64; a text needs 6.0 us and a hash 7.0 us (one GET and one SET instead of HMGET, HSET and
-- PEXPIRE, and no number is parsed).
local function read_token_bucket(stored, now, rate, full)
    if not stored or #stored ~= 24 then
        return full, false
    end
    local was_level, was_at, was_full = struct.unpack('<ddd', stored)
    -- An invalid value counts as no value. NaN fails every comparison.
    if not (was_full >= 1 and was_full <= 2 ^ 53 and was_full % 1 == 0 and was_level <= was_full
        and was_level >= -1000 * was_full and was_level >= -2 ^ 53 and was_at >= 0) then
        return full, false
    end
    local level, at, moved = math.floor(was_level), math.floor(was_at), false
    if was_full ~= full then
        -- Its time to live is that of the old rule.
        level, moved = math.max(math.floor(level / was_full * full), -2 ^ 53), true
    end
    -- A clock that went back by up to a second changes nothing. If it went back further, the bucket
    -- refills from the current time; otherwise it would not refill until the clock had caught up.
    if at > now + 1000000 then
        at, moved = now, true
    end
    if at < now then
        level, at = level + (now - at) * rate, now
    end
    if level > full then
        level = full
    end
    return level, moved, at > now and at or nil
end

-- A key expires only after its bucket is full, which equals no key: the time to live only frees
-- memory.
local function write_token_bucket(key, level, at, rate, full)
    local milliseconds = math.ceil((full - level) / rate / 1000) + 1000
    redis.call('SET', key, struct.pack('<ddd', level, at, full), 'PX', milliseconds)
end

-- Token buckets from which gateways have borrowed. Parameters: as of a token bucket.
--
-- Stored as a token bucket, and two doubles: the units lent in the epoch of its time, and in the
-- one before. An epoch is two seconds. What is lent is spent before the end of the next epoch.
-- Until then, it and the level are at most a full bucket together, so that what all gateways spend
-- never exceeds the limit in any span of time: docs/leases.md has the proof.
--
-- Between read and write, `leases` has both numbers of units; nil if both are 0.
local function leased_token_buckets(read_token_bucket, write_token_bucket)
    local EPOCH, leases = 2000000, {}

    local function read(stored, now, rate, full, _, _, _, index)
        if not stored or #stored ~= 40 then
            return read_token_bucket(stored, now, rate, full)
        end
        local _, was_at, was_full, lent, before = struct.unpack('<ddddd', stored)
        -- An invalid value counts as no value. NaN fails every comparison.
        if not (was_at >= 0 and was_full >= 1 and was_full <= 2 ^ 53 and lent >= 0 and before >= 0
            and lent + before <= was_full) then
            return full, false
        end
        -- As of its own time, in units of the caller.
        was_at = math.min(math.floor(was_at), now)
        local level, moved, at = read_token_bucket(string.sub(stored, 1, 24), was_at, rate, full)
        at = at or was_at
        lent, before = math.ceil(lent), math.ceil(before)
        if was_full ~= full then
            lent, before = math.ceil(lent / was_full * full), math.ceil(before / was_full * full)
        end
        -- Refills each epoch apart: units that were lent could still be spent until its end, so
        -- until then they leave no room for others.
        local ends = math.floor(at / EPOCH) * EPOCH + EPOCH
        while ends <= now and lent + before > 0 do
            level = math.min(level + (ends - at) * rate, full - lent - before)
            at, before, lent, ends = ends, lent, 0, ends + EPOCH
        end
        level = math.min(level + math.max(now - at, 0) * rate, full - lent - before)
        leases[index] = lent + before > 0 and { lent, before } or nil
        return level, moved, at > now and at or nil
    end

    -- A key expires only after what is lent has been spent, and its bucket is full then.
    local function write(key, level, at, rate, full, _, index)
        local lease = leases[index]
        if not lease then
            return write_token_bucket(key, level, at, rate, full)
        end
        local milliseconds = math.ceil((full - level) / rate / 1000) + 6000
        redis.call('SET', key, struct.pack('<ddddd', level, at, full, lease[1], lease[2]),
            'PX', milliseconds)
    end

    -- The highest level that a bucket can have.
    local function most(index, full)
        local lease = leases[index]
        return lease and full - lease[1] - lease[2] or full
    end

    -- The epoch of a time, and the microseconds until what is lent in it is no longer counted.
    local function epoch(at)
        local number = math.floor(at / EPOCH)
        return number, (number + 2) * EPOCH - at
    end

    -- Deducts the units that were lent in the epoch of the bucket (age 1) or the one before (age
    -- 2), and are spent or returned. Returns the level, with those that are returned.
    local function take_back(index, level, age, spent, returned)
        leases[index] = leases[index] or { 0, 0 }
        local lease = leases[index]
        local lent = math.max(lease[age] - spent, 0)
        local back = math.min(returned, lent)
        lease[age] = lent - back
        return level + back
    end

    -- Lends units of a bucket with this level. Returns how many: at most a quarter of a full bucket
    -- is lent.
    local function lend(index, level, full, wanted, divisor, least)
        local lease = leases[index] or { 0, 0 }
        local lends = math.min(wanted, math.floor(level / divisor),
            math.floor(full / 4) - lease[1] - lease[2])
        lends = lends >= math.max(least, 1) and lends or 0
        lease[1] = lease[1] + lends
        leases[index] = lease[1] + lease[2] > 0 and lease or nil
        return lends
    end

    return {
        read = read, write = write, most = most, epoch = epoch, take_back = take_back, lend = lend,
    }
end

-- Fixed window. Parameters: start of the caller's current period, level at the start of a period.
-- Further parameters: end of that period, end of the next one. Times are microseconds of Unix time.
--
-- Stored as three doubles: its level, the end of its period, and minus the level at the start of a
-- period when it was written; then '+', if an operator has granted more than the limit. After a
-- change of the limit, what was used stays used. A bucket with top-ups is stored differently: see
-- `create`.
local function fixed_windows()
    local function read(stored, now, start, full, call, further)
        local finish, next_finish = struct.unpack('<dd', call, further)
        -- The clock of this server chooses the period. `chosen` is nil if the caller's clock is
        -- wrong by a period or more.
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
                and level <= (is_above and 2 ^ 53 or was_full) and level >= -2 ^ 53
                and at >= 0 and at <= 2 ^ 53) then
                at = nil
            end
        end
        -- Only the end of the stored period resets it: once, whatever periods the callers send.
        if not at or now >= math.floor(at) then
            if not chosen then
                local length = math.max(finish - start, 1)
                chosen = start + (math.floor((now - start) / length) + 1) * length
            end
            return full, false, chosen
        end
        level, at = math.floor(level), math.floor(at)
        local was_at = at
        if was_full ~= full then
            level = math.max(math.min(full - was_full + level, 2 ^ 53), -2 ^ 53)
        end
        -- If the clock went back over the start of the stored period, that period stays.
        if chosen and not (chosen == finish and at == next_finish) then
            at = chosen
        end
        return level, at ~= was_at or was_full ~= full, at
    end

    -- A key expires only after its period, when it is full again, which equals no key.
    local function write(key, level, at, _, full, now)
        redis.call('SET', key, struct.pack('<ddd', level, at, -full) .. (level > full and '+' or ''),
            'PX', math.ceil((at - now) / 1000) + 1000)
    end

    return read, write
end

-- Requests in flight. Parameters: microseconds of a lease, units that can be held at once. Further
-- parameters: id of the gateway that calls (8 bytes), number of its statement, units that it holds
-- without those that this call takes; below zero: no statement, its units are those of its last
-- one.
--
-- Stored as 'cc1' and 24 bytes for each gateway: its id, its units, the end of its lease in
-- milliseconds, and the number of its last statement. Units are free once the lease ends. A
-- statement that arrives after a later one, such as a call that was given up, changes nothing. So
-- the gateway keeps an entry without units until its lease ends.
--
-- Between read and write, `entries` has what must be known to write a bucket; nil if it may not be
-- written.
local function requests_in_flight()
    local entries = { nil }

    local function read(stored, now, lease, full, call, further, _, index)
        local gateway, number, stated = struct.unpack('<c8dd', call, further)
        local is_valid = stored and #stored % 24 == 3 and string.sub(stored, 1, 3) == 'cc1'
        local last_end = math.ceil((now + lease) / 1000)
        local own, sum, others, is_late = 0, 0, '', false
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
                    sum = sum + units
                    others = others .. struct.pack('<c8I4I6I6', id, units, ends, last)
                end
            end
        end
        if is_late then
            return full - sum - own, false
        end
        if stated >= 0 then
            own = stated
        end
        local level = full - sum - own
        -- A value of another kind, of a rule whose kind is being changed, is replaced only by a
        -- take.
        entries[index] = { level, own, others, gateway, number, last_end }
        return level, stated >= 0 and (is_valid or not stored)
    end

    -- A key expires once all leases have ended, which equals no key.
    local function write(key, level, _, lease, _, _, index)
        if not entries[index] then
            return
        end
        local was_level, own, others, gateway, number, last_end = unpack(entries[index])
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
            'cc1' .. struct.pack('<c8I4I6I6', gateway, math.min(own, 2 ^ 32 - 1), last_end, number)
                .. others,
            'PX', math.ceil(lease / 1000) + 2000)
    end

    return read, write
end

-- Sliding window. Parameters: length of the window in microseconds, number of tokens in it.
--
-- Stored as a head and a ring. The head has five doubles: minus the number of slots of the ring,
-- the slot of the oldest stamp (from 0), the number of stamps, the oldest stamp and the newest. A
-- slot is a double: a stamp, the time at which a token was taken. Stamps that have left the window
-- stay until the bucket is written. The ring is written anew with up to twice the slots when it is
-- too small, and when it is much too large. So a call reads and writes as many stamps as it takes
-- tokens, and finds the oldest stamp in the window in the logarithm of the number that have left
-- it.
--
-- A stamp is never before an older one: if the clock went back by up to a second, new stamps are
-- those of the newest. If it went back further, later stamps count as taken at the current time.
--
-- Between read and write, `logs` has the numbers of the head, and what is to be added.
local function sliding_windows(now)
    local HEAD, SLOT, MIN_SLOTS, logs = 40, 8, 8, { nil }
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

    -- With the level changed to `level`: numbers of the stamps that stay, the newest ones, and of
    -- those to add.
    local function split(log, level)
        local stamps = log.limit - level
        local added = min(log.owed + max(log.level - level, 0), stamps)
        return stamps - added, added
    end

    -- Whether an error is that of a right which only sliding windows need. Servers before 7.0,
    -- those of 7 and those of 8 say it in other words.
    local function is_right_missing(text)
        return string.find(text, 'NOPERM', 1, true) or string.find(text, "can't run", 1, true)
            or string.find(text, 'ACL failure', 1, true)
    end

    -- Adds the stamps of a debt in the place of the oldest ones. Returns the level.
    local function settle(index, units)
        local log = logs[index]
        log.owed = min(log.owed + floor(units), log.limit)
        log.level = log.limit - min(log.count + log.owed, log.limit)
        return log.level
    end

    -- Drops the oldest stamps. Returns the level.
    local function give_back(index, units)
        local log = logs[index]
        local dropped = min(floor(units), log.count)
        if dropped < log.count then
            log.oldest = stamp(log, dropped)
        end
        log.first, log.count = (log.first + dropped) % log.slots, log.count - dropped
        log.level = log.limit - min(log.count + log.owed, log.limit)
        return log.level
    end

    -- At this level: microseconds until there is room for `units`, and until the bucket is full.
    local function times(index, level, units)
        local log = logs[index]
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

    -- `head` is only the head: the ring can be long.
    local function read(head, _, window, limit, _, _, key, index)
        local log = {
            key = key, window = window, limit = limit, level = limit,
            slots = 1, first = 0, count = 0, oldest = 0, newest = 0,
            stamp = now, owed = 0, rewrite = true,
        }
        logs[index] = log
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

    -- Writes a bucket with this level. Its key expires once its stamps have left the window, which
    -- equals no key.
    local function write(_, level, _, _, _, _, index)
        local log = logs[index]
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
        -- Without a right to do so, the whole string is written: this has changed no slot of a
        -- stamp that is kept.
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

    return {
        read = read, write = write, logs = logs, is_right_missing = is_right_missing,
        settle = settle, give_back = give_back, times = times,
    }
end

-- Takes units for groups of equal requests: of each group for the first ones, as many as can be
-- allowed. Adds to the reply, which has the current time, and returns its length.
local function take(call, position, levels, moved, sliding, reply)
    local UNREADABLE, max, floor, unpack = -2 ^ 54, math.max, math.floor, struct.unpack
    local length = 1
    while position <= #call do
        local passed, charges
        passed, charges, position = unpack('<HB', call, position)
        local first = position
        -- Of the last charge read: those of a single charge are not read twice.
        local index, units, shadow
        for _ = 1, charges do
            index, units, shadow, position = unpack('<HdB', call, position)
            if shadow == 0 or shadow == 2 then
                local level = levels[index]
                if level == UNREADABLE then
                    passed = -1
                elseif passed > 0 and level < passed * units then
                    passed = max(floor(level / units), 0)
                end
            elseif shadow == 4 and levels[index] == UNREADABLE then
                passed = -1
            end
        end
        length = length + 1
        reply[length] = passed
        if charges > 1 then
            position = first
        end
        for _ = 1, charges do
            if charges > 1 then
                index, units, shadow, position = unpack('<HdB', call, position)
            end
            local level, took = levels[index], passed
            if (shadow == 1 or shadow == 3) and level < took * units then
                took = max(floor(level / units), 0)
            end
            if took > 0 then
                level = level - took * units
                if shadow == 4 then
                    level = max(level, -2 ^ 53)
                end
                levels[index], moved[index] = level, true
            end
            length = length + 1
            reply[length] = level
            if shadow ~= 0 and shadow ~= 4 then
                if shadow ~= 2 then
                    length = length + 1
                    reply[length] = took
                end
                if shadow >= 2 and level ~= UNREADABLE then
                    reply[length + 1], reply[length + 2] = sliding.times(index, level, units)
                    length = length + 2
                end
            end
        end
    end
    return length
end

-- Creates a function that few calls need: `lower`, `deduct` and `give_back` change levels before
-- the operation of a call; `adjust`, `lend` and `peek` are operations, which add to the reply;
-- `top_ups` creates the functions of a fixed window with top-ups.
-- `buckets` are the variables at the end of this file with the same names.
local function create(name)
    if name == 'lower' then
        -- Lowers levels to those that the caller saw before another server took over, which may
        -- lack what its predecessor had counted.
        return function(buckets, claims)
            local levels, moved, sliding = buckets.levels, buckets.moved, buckets.sliding
            local UNREADABLE, MAX_CHANGES, unpack, at = -2 ^ 54, 32, struct.unpack, 1
            local function is_changed_since(key, seen_at)
                local changed_at = redis.pcall('GET', key)
                return type(changed_at) == 'string' and seen_at <= (tonumber(changed_at) or 0)
            end
            -- A level of a fixed window that was seen at a time, as it would be after the changes of
            -- its top-ups since then; nil if not all of them are known.
            local function with_changes(key, level, seen_at)
                local changes = redis.pcall('GET', key .. ':~topped')
                if type(changes) ~= 'string' then
                    return level
                elseif #changes % 24 ~= 0 then
                    -- Of version 0.2.0: the time of the last one.
                    return seen_at > (tonumber(changes) or 0) and level or nil
                elseif #changes == 24 * MAX_CHANGES and seen_at <= unpack('<d', changes) then
                    return nil
                end
                for place = 1, #changes, 24 do
                    local changed_at, units, later = unpack('<ddd', changes, place)
                    if seen_at <= changed_at then
                        local lost = math.max(math.min(level - later, -units), 0)
                        level = level + (units > 0 and units or -lost)
                    end
                end
                return level
            end
            while at <= #claims do
                local index, claimed, period_end, seen_at
                index, claimed, period_end, seen_at, at = unpack('<Hddd', claims, at)
                local level = levels[index]
                if period_end > 0 and buckets.times[index] == period_end then
                    claimed = with_changes(buckets.keys[index], claimed, seen_at) or level
                end
                local lowers = level ~= UNREADABLE and claimed < level
                    and (period_end == 0 or buckets.times[index] == period_end)
                if lowers then
                    -- A reset or a grant by an operator counts, whatever was seen before it.
                    -- Without this key, none was made.
                    lowers = not is_changed_since(buckets.keys[index] .. ':~adjusted', seen_at)
                end
                if lowers then
                    if sliding and sliding.logs[index] then
                        claimed = sliding.settle(index, level - claimed)
                    end
                    levels[index], moved[index] = claimed, true
                end
            end
        end

    elseif name == 'deduct' then
        -- Deducts units that were granted locally.
        return function(buckets, debts)
            local levels, moved, sliding = buckets.levels, buckets.moved, buckets.sliding
            local UNREADABLE, unpack, at = -2 ^ 54, struct.unpack, 1
            while at <= #debts do
                local index, units
                index, units, at = unpack('<Hd', debts, at)
                if levels[index] ~= UNREADABLE then
                    if sliding and sliding.logs[index] then
                        levels[index] = sliding.settle(index, units)
                    else
                        local number, _, full = unpack('<Bdd', buckets.call, 17 * index - 15)
                        local lowest = number == 2 and -2 ^ 53 or -1000 * full
                        levels[index] = math.max(levels[index] - units, lowest, -2 ^ 53)
                    end
                    moved[index] = true
                end
            end
        end

    elseif name == 'give_back' then
        -- Gives back what refused requests took, at most what keeps the limits exact. Since it was
        -- taken, a token bucket may have been full without these requests, and what it refilled in
        -- that time would have been lost. A leaky bucket gets tokens back only if it is full then:
        -- otherwise other requests wait already because of these. A fixed window counts what was
        -- taken in its period. From a sliding window, the oldest tokens are dropped: they leave it
        -- earlier than those that were taken, which must still be in it. After a reset or a grant
        -- by an operator, no bucket gets anything back that was taken before: it is as full as it
        -- would be without these requests.
        --
        -- Returns the units that were given back to each bucket, and its level then.
        return function(buckets, returned)
            local levels, moved, times, now = buckets.levels, buckets.moved, buckets.times, buckets.now
            local FIXED_WINDOW, SLIDING_WINDOW, CONCURRENCY, UNREADABLE = 2, 3, 4, -2 ^ 54
            local unpack, at, given = struct.unpack, 1, {}
            while at <= #returned do
                local index, units, taken_at, period_end, leaky
                index, units, taken_at, period_end, leaky, at = unpack('<HdddB', returned, at)
                local number, first, full = unpack('<Bdd', buckets.call, 17 * index - 15)
                local level = levels[index]
                local adjusted_at = redis.pcall('GET', buckets.keys[index] .. ':~adjusted')
                local is_void = type(adjusted_at) == 'string' and taken_at <= (tonumber(adjusted_at) or 0)
                if level == UNREADABLE or is_void or number == CONCURRENCY then
                    units = 0
                elseif number == SLIDING_WINDOW then
                    if taken_at > now - first then
                        levels[index], moved[index] = buckets.sliding.give_back(index, units), true
                    end
                    units = 0
                elseif number == FIXED_WINDOW then
                    units = times[index] == period_end and units or 0
                    full = buckets.topped and buckets.topped.most(index, full) or full
                else
                    -- If the clock went back since, the time of the bucket counts, which has not.
                    local elapsed = (times[index] or now) - taken_at
                    units = elapsed >= 0 and units - first * elapsed or 0
                    full = buckets.leased and buckets.leased.most(index, full) or full
                end
                if units > 0 and (leaky == 0 or level + units >= full) then
                    level = math.max(math.min(level + units, full), level)
                    if buckets.topped then
                        level = buckets.topped.settle(index, level, now)
                    end
                    level, levels[index], moved[index] = levels[index], level, true
                end
                given[#given + 1] = levels[index] - level
                given[#given + 1] = levels[index]
            end
            return given
        end

    elseif name == 'adjust' then
        -- Adds units, for an operator. If any bucket is unreadable, none changes. Returns whether
        -- they change.
        return function(buckets, position, reply)
            local call, levels = buckets.call, buckets.levels
            local FIXED_WINDOW, UNREADABLE, unpack, readable = 2, -2 ^ 54, struct.unpack, true
            for index = 1, #levels do
                readable = readable and levels[index] ~= UNREADABLE
            end
            local flags = string.byte(call, position + 8 * #levels) or 0
            for index = 1, #levels do
                local before, units = levels[index]
                units, position = unpack('<d', call, position)
                if readable then
                    local number, _, full = unpack('<Bdd', call, 17 * index - 15)
                    if buckets.topped and flags >= 4 then
                        buckets.topped.forget(index, buckets.now)
                    end
                    if number == FIXED_WINDOW and flags % 4 >= 2 then
                        full = 2 ^ 53
                    elseif number == FIXED_WINDOW and buckets.topped then
                        full = buckets.topped.most(index, full)
                    elseif buckets.leased then
                        full = buckets.leased.most(index, full)
                    end
                    levels[index] = math.max(math.min(before + units, full), before)
                    if buckets.topped then
                        levels[index] = buckets.topped.settle(index, levels[index], buckets.now)
                    end
                    buckets.moved[index] = true
                end
                reply[2 * index], reply[2 * index + 1] = before, levels[index]
            end
            for index = 1, readable and flags % 2 == 1 and #levels or 0 do
                -- An error, such as in a slot that is being moved, must not undo the change.
                redis.pcall('SET', buckets.keys[index] .. ':~adjusted', string.format('%.0f', buckets.now),
                    'PX', '3660000')
            end
            return readable
        end

    elseif name == 'top_ups' then
        -- Fixed windows with top-ups: units beyond the limit, each until a time. A request takes
        -- units of the period first, then of the top-up that expires first. The level is that of
        -- all together, so what is left of each follows from the level, and from the units that
        -- each had when the period began.
        --
        -- Stored as the three doubles of a fixed window, 'T', and for each top-up three doubles:
        -- these units, its expiry and its id, in the order in which they are used. Three more, of
        -- which the first is 0, say of the last period that has ended with top-ups its end, and the
        -- units that a debt of it takes before it takes any of the top-ups: those of the limit that
        -- were not used, and those that have expired since.
        --
        -- Between read and write, `lists` has the numbers of the top-ups one after another, nil
        -- without any, and `lasts` those of the last period.
        return function(read_window, write_window)
            local MARK, SIZE, MAX, MAX_CHANGES, lists, lasts = 84, 24, 16, 32, { nil }, { nil }
            local floor, max, min, pack, unpack = math.floor, math.max, math.min, struct.pack, struct.unpack

            local function is_whole(number, least, most)
                return number >= least and number <= most and number % 1 == 0
            end

            -- The top-ups of a stored value, its level, the end of its period, and what it has of the
            -- last one; nil if no gateway writes it.
            local function unpacked(stored)
                local level, at, full = unpack('<ddd', stored)
                if string.byte(stored, SIZE + 1) ~= MARK or #stored % SIZE ~= 1
                    or #stored > SIZE * (MAX + 2) + 1 or not is_whole(-full, 1, 2 ^ 53)
                    or not (level <= 2 ^ 53 and level >= -2 ^ 53 and at >= 0 and at <= 2 ^ 53) then
                    return nil
                end
                local list, last = {}, nil
                for position = SIZE + 2, #stored, SIZE do
                    local units, expires, id = unpack('<ddd', stored, position)
                    if not (is_whole(units, 0, 2 ^ 53) and is_whole(expires, 0, 2 ^ 53)
                        and is_whole(id, 0, 2 ^ 53)) then
                        return nil
                    elseif units == 0 then
                        last = { expires, id }
                    else
                        list[#list + 1], list[#list + 2], list[#list + 3] = units, expires, id
                    end
                end
                return list, floor(level), floor(at), last
            end

            local function sum(list)
                local units = 0
                for at = 1, list and #list or 0, 3 do
                    units = units + list[at]
                end
                return units
            end

            -- Calls a function with each top-up, and with what is left of it. Returns the top-ups
            -- with the units that the function returns.
            local function with_units(list, level, units_of)
                local kept, later = {}, sum(list)
                for at = 1, #list, 3 do
                    local units, expires, id = list[at], list[at + 1], list[at + 2]
                    later = later - units
                    units = units_of(units, max(min(level - later, units), 0), expires, id)
                    if units > 0 then
                        kept[#kept + 1], kept[#kept + 2], kept[#kept + 3] = units, expires, id
                    end
                end
                return kept
            end

            -- Takes away what has expired. What was used stays until the period ends: a request may
            -- give it back. Returns the top-ups and the level.
            local function expire(list, level, now)
                local left_level = level
                list = with_units(list, level, function(units, left, expires)
                    local lost = expires <= now and left or 0
                    left_level = left_level - lost
                    return units - lost
                end)
                return list, left_level
            end

            local function keep(index, list)
                lists[index] = #list > 0 and list or nil
            end

            -- A debt of the last period would have taken what has expired, before any of the others.
            local function note_lost(last, units)
                if last then
                    last[2] = min(last[2] + units, 2 ^ 53)
                end
            end

            -- Takes away what has expired of a bucket. Returns its level.
            local function expire_at(index, level, now)
                local list, after = expire(lists[index], level, now)
                note_lost(lasts[index], level - after)
                keep(index, list)
                return after
            end

            local function read(stored, now, start, full, call, further, key, index)
                local list, was_level, ends, last
                if stored and #stored > SIZE + 1 then
                    list, was_level, ends, last = unpacked(stored)
                end
                if not list then
                    return read_window(stored, now, start, full, call, further, key, index)
                end
                local head = string.sub(stored, 1, SIZE) .. '+'
                local level, moved, at = read_window(head, now, start, full, call, further, key, index)
                if now >= ends then
                    list, was_level = expire(list, was_level, ends)
                    last = { ends, max(was_level - sum(list), 0) }
                    local before = was_level
                    list, was_level = expire(list, was_level, now)
                    note_lost(last, before - was_level)
                    list = with_units(list, was_level, function(_, left)
                        return left
                    end)
                    level = min(full + sum(list), 2 ^ 53)
                else
                    local before = level
                    list, level = expire(list, level, now)
                    note_lost(last, before - level)
                end
                lasts[index] = last
                keep(index, list)
                return level, moved, at
            end

            -- A key expires only after its period and its top-ups, which equals no key.
            local function write(key, level, at, start, full, now, index)
                local list = lists[index]
                if not list then
                    return write_window(key, level, at, start, full, now, index)
                end
                local packed, latest, last = { pack('<ddd', level, at, -full), 'T' }, at, lasts[index]
                for place = 1, #list, 3 do
                    packed[#packed + 1] = pack('<ddd', list[place], list[place + 1], list[place + 2])
                    latest = max(latest, list[place + 1])
                end
                if last then
                    packed[#packed + 1] = pack('<ddd', 0, last[1], last[2])
                end
                redis.call('SET', key, table.concat(packed), 'PX', math.ceil((latest - now) / 1000) + 1000)
            end

            -- Adds one. Returns 0 and the level, or what is wrong, or 4, the level and the text of the
            -- one with the same id that was added before. The text is there until it has expired,
            -- also if it is used up.
            local function add(index, level, full, now, one)
                local list, before = lists[index] or {}, sum(lists[index])
                local known = redis.pcall('GET', one.key)
                if type(known) == 'string' then
                    return 4, level, known
                end
                -- A server with too little memory drops texts.
                for at = 1, #list, 3 do
                    if list[at + 2] == one.id and list[at + 1] > now then
                        return 4, level, ''
                    end
                end
                if #list >= 3 * MAX then
                    return 1
                elseif one.units > 2 ^ 53 - (max(full, level - before) + before) then
                    return 2
                end
                local at = 1
                while at <= #list and list[at + 1] <= one.expires do
                    at = at + 3
                end
                table.insert(list, at, one.id)
                table.insert(list, at, one.expires)
                table.insert(list, at, one.units)
                keep(index, list)
                local milliseconds = math.ceil((one.expires - now) / 1000) + 1000
                redis.call('SET', one.key, one.text, 'PX', string.format('%.0f', max(milliseconds, 1000)))
                return 0, level + one.units
            end

            -- Takes one away. Returns 0 and the level, or what is wrong; and minus its units, and those
            -- of the top-ups that are used later.
            local function revoke(index, level, now, one)
                local is_found, later, gone, sooner = false, 0, 0, 0
                local list = with_units(lists[index] or {}, level, function(units, left, _, id)
                    later = later + (is_found and units or 0)
                    if id == one.id and left > 0 then
                        is_found, gone = true, units
                    end
                    sooner = sooner + (is_found and 0 or left)
                    return units
                end)
                for at = 1, is_found and #list or 0, 3 do
                    if list[at + 2] == one.id then
                        list[at + 1] = min(list[at + 1], now)
                    end
                end
                if not is_found then
                    return 3
                end
                local left, after = expire(list, level, now)
                keep(index, left)
                -- A debt of the last period takes from those that are used sooner, if something is left of them.
                if sooner == 0 then
                    note_lost(lasts[index], level - after)
                end
                return 0, after, nil, -gone, later
            end

            -- Notes that a top-up of so many units was added to a bucket, or with minus taken away, and
            -- the units of those that are used later: for an hour, the last `MAX_CHANGES` changes.
            local function note_change(key, now, units, later)
                local kept = redis.pcall('GET', key .. ':~topped')
                kept = type(kept) == 'string' and #kept % SIZE == 0 and kept or ''
                kept = string.sub(kept .. pack('<ddd', now, units, later), -SIZE * MAX_CHANGES)
                redis.pcall('SET', key .. ':~topped', kept, 'PX', '3660000')
            end

            -- Adds a text to the reply.
            local function append(reply, text)
                reply[#reply + 1] = #text
                local padded = text .. string.rep('\0', -#text % 6)
                for at = 1, #padded, 6 do
                    reply[#reply + 1] = unpack('<I6', padded, at)
                end
            end

            -- Adds those that can be used to the reply.
            local function list_all(index, level, now, key, reply)
                with_units(lists[index] or {}, level, function(units, left, expires, id)
                    if expires > now then
                        local text = redis.pcall('GET', key .. ':~top-up:' .. string.format('%.0f', id))
                        reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = id, left, expires
                        append(reply, type(text) == 'string' and text or '')
                    end
                    return units
                end)
            end

            -- The operation on the only bucket of a call.
            local function operate(buckets, position, reply)
                local call, now, key, level = buckets.call, buckets.now, buckets.keys[1], buckets.levels[1]
                if level == -2 ^ 54 then
                    reply[2] = -1
                    return
                end
                local action, units, expires, id
                action, units, expires, id, position = unpack('<Bddd', call, position)
                local _, _, full = unpack('<Bdd', call, 2)
                local one = {
                    units = units, expires = expires, id = id, text = string.sub(call, position),
                    key = key .. ':~top-up:' .. string.format('%.0f', id),
                }
                local status, after, known, moved, later = 0, level, nil, units, 0
                if action == 1 then
                    status, after, known = add(1, level, full, now, one)
                elseif action == 2 then
                    status, after, known, moved, later = revoke(1, level, now, one)
                end
                reply[2], reply[3], reply[4] = status, level, after or level
                if status == 0 and action > 0 then
                    buckets.levels[1], buckets.moved[1] = after, true
                    note_change(key, now, moved, later)
                end
                if known then
                    append(reply, known)
                end
                list_all(1, after or level, now, key, reply)
            end

            -- Takes what was granted locally in a period that has ended, as if it had been taken
            -- then. Returns the units that are taken from the level.
            local function take_lapsed(index, level, at, full, units, period_end)
                local last = lasts[index]
                if period_end == at then
                    -- By the clock of this server, it has not ended.
                    return min(units, level + 2 ^ 53)
                elseif not last or period_end > at or period_end < last[1] then
                    -- The top-ups were added later, or it is not known what else was used then.
                    return 0
                elseif period_end > last[1] then
                    last[1], last[2] = period_end, full
                end
                local left, taken = max(units - last[2], 0), 0
                last[2] = last[2] - (units - left)
                keep(index, with_units(lists[index], level, function(had)
                    local part = min(had, left)
                    left, taken = left - part, taken + part
                    return had - part
                end))
                return taken
            end

            -- Whether a debt is taken for the first time: a call without a reply is repeated.
            local function is_first(key, number)
                local name = key .. ':~lapsed:' .. string.format('%.0f', number)
                if type(redis.pcall('GET', name)) == 'string' then
                    return false
                end
                redis.call('SET', name, '1', 'PX', '3600000')
                return true
            end

            -- Takes lapsed debts to buckets. Adds what is taken from each to the reply.
            local function lapsed(buckets, position, reply)
                local call, levels = buckets.call, buckets.levels
                for index = 1, #levels do
                    local units, period_end, number, taken
                    units, period_end, number, position = unpack('<ddd', call, position)
                    taken = 0
                    if lists[index] and is_first(buckets.keys[index], number) then
                        local _, _, full = unpack('<Bdd', call, 17 * index - 15)
                        taken = take_lapsed(index, levels[index], buckets.times[index], full, units, period_end)
                        levels[index], buckets.moved[index] = levels[index] - taken, true
                    end
                    reply[index + 1] = taken
                end
            end

            return {
                read = read, write = write, operate = operate, lapsed = lapsed,
                -- The level without what has expired, after it has risen.
                settle = function(index, level, now)
                    return lists[index] and expire_at(index, level, now) or level
                end,
                -- The units that are left of all, and when the first of them expires.
                left = function(index, level, now)
                    local all, first = 0, 0
                    with_units(lists[index] or {}, level, function(units, left, expires)
                        if expires > now and left > 0 then
                            all, first = all + left, first == 0 and expires or first
                        end
                        return units
                    end)
                    return all, first
                end,
                -- Forgets what was used of those that have expired.
                forget = function(index, now)
                    if lists[index] then
                        keep(index, with_units(lists[index], 0, function(units, _, expires)
                            return expires > now and units or 0
                        end))
                    end
                end,
                -- The highest level that a bucket can have.
                most = function(index, full)
                    return min(full + sum(lists[index]), 2 ^ 53)
                end,
            }
        end

    elseif name == 'lend' then
        -- Deducts what is spent or returned of the units that were lent, and lends more.
        return function(buckets, position, reply)
            local call, levels, moved, leased = buckets.call, buckets.levels, buckets.moved, buckets.leased
            local UNREADABLE, unpack = -2 ^ 54, struct.unpack
            for index = 1, #levels do
                local level, lends = levels[index], 0
                local epoch, left = leased.epoch(buckets.times[index] or buckets.now)
                local wanted, divisor, least
                wanted, divisor, least, position = unpack('<ddd', call, position)
                for _ = 1, 2 do
                    local lent_in, spent, returned
                    lent_in, spent, returned, position = unpack('<ddd', call, position)
                    if level ~= UNREADABLE and (lent_in == epoch or lent_in == epoch - 1) then
                        level = leased.take_back(index, level, epoch - lent_in + 1, spent, returned)
                        moved[index] = true
                    end
                end
                if level ~= UNREADABLE then
                    local full = unpack('<d', call, 17 * index - 6)
                    lends = leased.lend(index, level, full, wanted, divisor, least)
                    level = level - lends
                    levels[index], moved[index] = level, moved[index] or lends > 0
                end
                reply[4 * index - 2], reply[4 * index - 1] = level, lends
                reply[4 * index], reply[4 * index + 1] = epoch, left
            end
        end

    elseif name == 'peek' then
        -- Reads levels.
        return function(call, position, levels, sliding, topped, now, reply)
            local FIXED_WINDOW, UNREADABLE, length = 2, -2 ^ 54, 1
            for index = 1, #levels do
                local units
                units, position = struct.unpack('<d', call, position)
                length = length + 1
                reply[length] = levels[index]
                if string.byte(call, 17 * index - 15) == FIXED_WINDOW and levels[index] ~= UNREADABLE then
                    reply[length + 1], reply[length + 2] = 0, 0
                    if topped then
                        reply[length + 1], reply[length + 2] = topped.left(index, levels[index], now)
                    end
                    length = length + 2
                end
                if sliding and sliding.logs[index] then
                    reply[length + 1], reply[length + 2] = sliding.times(index, levels[index], units)
                    length = length + 2
                end
            end
        end
    end
end

local now = tonumber(ARGV[1])
if not now then
    -- Read once: up to Redis 7.0 the clock advances while a script runs.
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    local latest = tonumber(string.sub(ARGV[1], 2))
    if latest and now > latest then
        return { err = string.format('EXPIRED %.0f', now) }
    end
end

local TAKE, ADJUST, LEASE, TOP_UP, LAPSED = 1, 2, 5, 6, 7
local TOKEN_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, UNREADABLE = 1, 2, 3, -2 ^ 54
local keys, call, get, unpack = KEYS, ARGV[2], redis.pcall, struct.unpack
-- Positions in the call of the next bucket, and of the further parameters of the next bucket that
-- has them.
local operation, position, further = string.byte(call), 2, 2 + 17 * #keys
-- By bucket: its level; whether it must be written; its time, as read returns it. Values that are
-- rarely needed again are unpacked again: a table costs more. `{ nil }` has room for one element:
-- to grow a table costs as much as to create it, and most calls have one bucket.
local levels, moved, times = { nil }, { nil }, nil
-- Functions for buckets other than token buckets from which nothing is lent, once the call has one.
local leased, topped, sliding, read_window, write_window, read_in_flight, write_in_flight
-- Whether the caller lacks the right to read a sliding window.
local lacks_right = false

-- Read.
for index = 1, #keys do
    local number, first, full
    number, first, full, position = unpack('<Bdd', call, position)
    local key, read, stored, size = keys[index], read_token_bucket, nil, 0
    if number == SLIDING_WINDOW then
        stored = get('GETRANGE', key, 0, 39)
    else
        stored = get('GET', key)
    end
    if number == TOKEN_BUCKET then
        if operation == LEASE or stored and #stored == 40 then
            leased = leased or leased_token_buckets(read_token_bucket, write_token_bucket)
            read = leased.read
        end
    elseif number == FIXED_WINDOW then
        if not read_window then
            read_window, write_window = fixed_windows()
        end
        read, size = read_window, 16
        if stored and #stored > 25 or operation == TOP_UP then
            topped = topped or create('top_ups')(read_window, write_window)
            read = topped.read
        end
    elseif number == SLIDING_WINDOW then
        sliding = sliding or sliding_windows(now)
        read = sliding.read
    else
        if not read_in_flight then
            read_in_flight, write_in_flight = requests_in_flight()
        end
        read, size = read_in_flight, 24
    end
    local level, is_moved, at
    if stored and #stored ~= 24 and type(stored) == 'table' then
        -- A key of another type, or a right that only sliding windows need is missing: the gateway
        -- decides on this bucket, and the script on the others. Any other error fails the call.
        local text = stored.err
        if number == SLIDING_WINDOW and sliding.is_right_missing(text) then
            lacks_right = true
        elseif string.sub(text, 1, 9) ~= 'WRONGTYPE' then
            return { err = text .. (number == SLIDING_WINDOW and ' (GETRANGE)' or ' (GET)') }
        end
        level = UNREADABLE
    else
        level, is_moved, at = read(stored, now, first, full, call, further, key, index)
    end
    further = further + size
    levels[index] = level
    if is_moved then
        moved[index] = true
    end
    if at then
        times = times or { nil }
        times[index] = at
    end
end

-- Change levels. Those that were seen before come before debts, which the caller has not seen then.
local debts, returned, claims, buckets, given = ARGV[3], ARGV[4], ARGV[5], nil, nil
if debts or operation == ADJUST or operation >= LEASE then
    buckets = {
        keys = keys, call = call, now = now, levels = levels, moved = moved, times = times or {},
        leased = leased, sliding = sliding, topped = topped,
    }
end
if claims and claims ~= '' then
    create('lower')(buckets, claims)
end
if debts and debts ~= '' then
    create('deduct')(buckets, debts)
end
if returned and returned ~= '' then
    given = create('give_back')(buckets, returned)
end

local reply = { now, nil, nil, nil, nil, nil, nil, nil }
if operation == TAKE then
    local length = take(call, further, levels, moved, sliding, reply)
    for index = 1, given and #given or 0 do
        length = length + 1
        reply[length] = given[index]
    end
    if lacks_right then
        reply[length + 1] = -1
    end
elseif operation == ADJUST then
    if not create('adjust')(buckets, further, reply) then
        return reply
    end
elseif operation == LEASE then
    create('lend')(buckets, further, reply)
elseif operation == TOP_UP then
    topped.operate(buckets, further, reply)
elseif operation == LAPSED then
    for index = 1, #keys do
        reply[index + 1] = 0
    end
    if topped then
        topped.lapsed(buckets, further, reply)
    end
else
    create('peek')(call, further, levels, sliding, topped, now, reply)
    return reply
end

-- Write.
for index = 1, #keys do
    if moved[index] then
        local number, first, full = unpack('<Bdd', call, 17 * index - 15)
        local at = times and times[index] or now
        local write = leased and leased.write or write_token_bucket
        if number ~= TOKEN_BUCKET then
            write = number == FIXED_WINDOW and (topped and topped.write or write_window)
                or number == SLIDING_WINDOW and sliding.write or write_in_flight
        end
        write(keys[index], levels[index], at, first, full, now, index)
    end
end

return reply
