-- Counts the gateways that share this Redis: each says every few seconds that it is there.
--
-- KEYS[1] a sorted set: gateways by when they were last heard of, in milliseconds
-- ARGV[1] who says so
-- ARGV[2] after how many milliseconds a silent gateway counts no more
--
-- Returns how many there are.

local time = redis.call('TIME')
local now, silent = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
local function exact(number)
    return string.format('%.0f', number)
end

redis.call('ZADD', KEYS[1], exact(now), ARGV[1])
-- Those of the future too: after a clock was set back they would be there for as long.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. exact(now - silent))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. exact(now + silent), '+inf')
redis.call('PEXPIRE', KEYS[1], exact(6 * silent))
return redis.call('ZCARD', KEYS[1])
