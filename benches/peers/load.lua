-- The requests that wrk sends: `wrk -s load.lua URL -- KEYS [MILLISECONDS]`.
--
-- KEYS are the clients: `hot` (one), `uniform` or `zipf` (of 100,000), `new:NUMBER` (a new client
-- for each request, from NUMBER on). The 100,000 are formatted before the measurement: such a
-- request costs wrk about 2 µs more than a constant one. MILLISECONDS is the average pause of a
-- connection between two requests.

local CLIENTS = 100000
local DRAWS = 2 ^ 20

local function of(key)
    return wrk.format(nil, nil, { ["x-api-key"] = key })
end

-- `draw` selects a client, DRAWS times; the requests then repeat.
local function rounds_of(draw)
    local requests, drawn = {}, {}
    for client = 1, CLIENTS do
        requests[client] = of(("user-%06d"):format(client))
    end
    for turn = 1, DRAWS do
        drawn[turn] = draw()
    end
    local turn = 0
    return function()
        turn = turn % DRAWS + 1
        return requests[drawn[turn]]
    end
end

-- The client of rank r sends 1/r as many requests as the first.
local function zipf()
    local sums, sum = {}, 0
    for rank = 1, CLIENTS do
        sum = sum + 1 / rank
        sums[rank] = sum
    end
    return function()
        local wanted, low, high = math.random() * sum, 1, CLIENTS
        while low < high do
            local middle = math.floor((low + high) / 2)
            if sums[middle] < wanted then low = middle + 1 else high = middle end
        end
        return low
    end
end

function init(arguments)
    math.randomseed(1)
    local keys, pause = arguments[1] or "hot", tonumber(arguments[2] or 0)
    local first = keys:match("^new:(%d+)$")
    if keys == "hot" then
        wrk.headers["x-api-key"] = "hot"
    elseif keys == "uniform" then
        request = rounds_of(function() return math.random(CLIENTS) end)
    elseif keys == "zipf" then
        request = rounds_of(zipf())
    elseif first then
        local client = tonumber(first)
        request = function()
            client = client + 1
            return of("user-" .. client)
        end
    else
        error("no such keys: " .. keys)
    end
    if pause > 0 then
        -- wrk uses whole milliseconds; the fraction is rounded at random.
        delay = function() return math.floor(math.random() * 2 * pause + math.random()) end
    end
end

function done(summary, latency)
    local errors = summary.errors
    io.write(("\nsummary %d %d %d %d %.1f %.1f\n"):format(
        summary.duration, summary.requests, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout,
        latency:percentile(50), latency:percentile(99)))
end
