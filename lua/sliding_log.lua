-- Sliding log: the times of the newest `limit` units, in a ring of seven-byte numbers inside one string.
-- KEYS   the logs
-- ARGV   verb; limit, window in us, clock tolerance in us; costs
-- Reply  four integers for each key: granted, remaining, retry_us, reset_us
-- State  a header (see lib/ring.lua), then the ring: oldest units at head - used, newest at head - 1
-- The twin of aiolimit/algorithms/sliding_log.py, which explains why `limit` times are enough.
local PARAMS = 3
-- include "lib/clock.lua"
-- include "lib/arithmetic.lua"
-- include "lib/request.lua"
-- include "lib/ring.lua"
-- include "lib/ring_writes.lua"
local limit, window, tolerance = unpack(param)

-- Bring a log forward to now: what a lower limit leaves, what the clock was set back over, what has aged out.
local function settle(log)
  if log.used > limit then
    log.excess = log.excess + log.used - limit
    drop_oldest(log, log.used - limit)
  end
  log.at = now
  if log.used > 0 and log.last > now then
    if log.last - now <= tolerance then
      log.at = log.last
    else
      local past = count_until(log, now)
      log.used, log.fresh, log.last, log.changed = past, log.used - past, now, true
    end
  end
  local aged = count_until(log, log.at - window)
  if aged > 0 then
    log.excess = 0
    drop_oldest(log, aged)
  end
end

local function charge(log, units)
  log.excess = min(log.excess + max(log.used + log.fresh + units - limit, 0), MAX_EXACT)
  log.fresh = min(log.fresh + units, limit)
  if log.used + log.fresh > limit then drop_oldest(log, log.used + log.fresh - limit) end
  log.last, log.changed = log.at, true
end

-- Oldest first, so that what stays counts at least as long as it should.
local function give_back(log, units)
  local from_excess = min(units, log.excess)
  local from_used = min(units - from_excess, log.used)
  log.excess = log.excess - from_excess
  if from_used > 0 then drop_oldest(log, from_used) end
  log.fresh = max(log.fresh - (units - from_excess - from_used), 0)
  log.changed = true
end

local function decide(log, cost)
  local live = log.used + log.fresh
  local free = max(limit - live - log.excess, 0)
  local moved = moved_units(op, cost, free)
  if moved > 0 then
    charge(log, moved)
  elseif moved < 0 and live > 0 then
    give_back(log, -moved)
  end
  live = log.used + log.fresh
  local unmet = moved == 0 and unmet_units(op, cost, free) or 0
  local retry_us = 0
  if unmet > 0 then
    local nth = max(unmet - (limit - live), 1) -- must age out, and the excess with the first of them
    retry_us = (nth <= log.used and time_of(log, nth) or log.at) + window - now
  end
  return max(moved, 0), max(limit - live - log.excess, 0), retry_us, live > 0 and log.last + window - now or 0
end

local logs, resets, order = {}, {}, {}
for i, key in ipairs(KEYS) do
  local log = logs[key]
  if not log then
    log = read_log(key, limit)
    logs[key] = log
    order[#order + 1] = key
    if not log.foreign then settle(log) end
  end
  if log.foreign then
    answer_foreign(i)
  else
    local granted, remaining, retry_us, reset_us = decide(log, cost_of(i))
    resets[key] = reset_us
    answer(i, granted, remaining, retry_us, reset_us)
  end
end
if not spoilt then write_logs(order, logs, resets, limit) end
return reply
