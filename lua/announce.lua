-- Records the heartbeat of a gateway, and counts the live gateways that share this Redis.
--
-- KEYS[1] sorted set of gateways, by the time of their last heartbeat in milliseconds
-- ARGV[1] ID of this gateway
-- ARGV[2] milliseconds without a heartbeat after which a gateway is not counted
--
-- Returns the number of live gateways.

local time = redis.call('TIME')
local now, silent = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
local function exact(number)
    return string.format('%.0f', number)
end

redis.call('ZADD', KEYS[1], exact(now), ARGV[1])
-- Also removes entries of the future, which remain after the clock was set back.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. exact(now - silent))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. exact(now + silent), '+inf')
redis.call('PEXPIRE', KEYS[1], exact(6 * silent))
return redis.call('ZCARD', KEYS[1])
