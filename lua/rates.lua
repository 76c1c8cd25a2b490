-- States the shares of adaptive rates that a gateway has found, and returns the lowest of all gateways.
--
-- KEYS    one for each rule; the script adds the number of an epoch of two seconds to it
-- ARGV[1] current time in seconds, for tests; empty: the clock of this server
-- ARGV    from 2 on, the share of each rule, in thousandths
--
-- Returns the lowest share of each rule that a gateway has stated in this epoch or the one before. A gateway states its share
-- each second, so what it stated last counts for two seconds at least, and for four at most.

local now = tonumber(ARGV[1]) or tonumber(redis.call('TIME')[1])
local epoch, reply = math.floor(now / 2), {}
for index = 1, #KEYS do
    local key, share = KEYS[index] .. string.format(':%.0f', epoch), tonumber(ARGV[index + 1])
    share = math.min(share, tonumber(redis.call('GET', key)) or share)
    redis.call('SET', key, string.format('%.0f', share), 'PX', '6000')
    local before = redis.call('GET', KEYS[index] .. string.format(':%.0f', epoch - 1))
    reply[index] = math.min(share, tonumber(before) or share)
end
return reply
