-- Records the heartbeat of a gateway, or that it leaves, and counts the live gateways that share this Redis.
--
-- KEYS[1] sorted set of gateways, by the time of their last heartbeat in milliseconds
-- KEYS[2] number of gateways that have left
-- KEYS[3] the same as KEYS[1], of the gateways that publish a hash of their limits
-- KEYS[4] the same, of those with the hash of this gateway
-- KEYS[5] the same, of those with the hash that this gateway had before; absent if it has not changed
-- ARGV[1] ID of this gateway
-- ARGV[2] milliseconds without a heartbeat after which a gateway is not counted
-- ARGV[3] 'leave' if the gateway leaves; otherwise absent
--
-- Returns the number of live gateways, of those that have left, of those that publish a hash, and of those with the hash
-- of this gateway. Older gateways know KEYS[1] alone.

local time = redis.call('TIME')
local now, silent = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
local function exact(number)
    return string.format('%.0f', number)
end

-- Adds this gateway with a score, or only changes its score if `how` is 'XX'. Returns how many live gateways there are.
local function put(key, score, how)
    if how then
        redis.call('ZADD', key, how, score, ARGV[1])
    else
        redis.call('ZADD', key, score, ARGV[1])
    end
    redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. exact(now - silent))
    -- Also removes entries of the future, which remain after the clock was set back.
    redis.call('ZREMRANGEBYSCORE', key, '(' .. exact(now + silent), '+inf')
    redis.call('PEXPIRE', key, exact(6 * silent))
    return redis.call('ZCARD', key)
end
-- Removes this gateway: its entry becomes one of long ago.
local function remove(key)
    return put(key, '0', 'XX')
end

local left = tonumber(redis.call('GET', KEYS[2])) or 0
if ARGV[3] == 'leave' then
    -- A gateway that is not counted any more has been missed already.
    local before = put(KEYS[1], exact(now), 'XX')
    local live = remove(KEYS[1])
    left = left + before - live
    redis.call('SET', KEYS[2], exact(left), 'PX', exact(6 * silent))
    return {live, left, remove(KEYS[3]), remove(KEYS[4])}
end
if KEYS[5] then
    remove(KEYS[5])
end
redis.call('PEXPIRE', KEYS[2], exact(6 * silent))
local live = put(KEYS[1], exact(now))
return {live, left, put(KEYS[3], exact(now)), put(KEYS[4], exact(now))}
