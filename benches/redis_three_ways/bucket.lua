-- A token bucket as it is usually written: one bucket, one token, one call.
-- KEYS[1] the bucket; ARGV: tokens a second, tokens of a full bucket. Returns 1 if it took one.
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = burst
if kept[1] then
    tokens = math.min(burst, kept[1] + math.max(0, now - kept[2]) * rate)
end
if tokens < 1 then
    return 0
end
redis.call('HMSET', KEYS[1], 'tokens', tokens - 1, 'at', now)
redis.call('EXPIRE', KEYS[1], math.ceil((burst - tokens + 1) / rate) + 1)
return 1
