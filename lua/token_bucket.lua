-- Token bucket: a level of units in use, in ticks, that drains steadily.
-- KEYS   the buckets
-- ARGV   verb; ticks to a unit, ticks that drain every span, span in us, ticks of a full bucket, clock tolerance in us;
--        costs
-- Reply  four integers for each key: granted, remaining, retry_us, reset_us
-- State  "level:written_us:ticks to a unit then"
-- The twin of aiolimit/algorithms/token_bucket.py, which explains the arithmetic.
local PARAMS = 5
-- include "lib/clock.lua"
-- include "lib/arithmetic.lua"
-- include "lib/request.lua"
local unit, gain, span, full, tolerance = unpack(param)

local function drain_us(ticks)
  return min(ceil_div(ticks * span, gain), MAX_WAIT_US)
end

local function parse(text)
  local level, since, old_unit = text:match('^(%d+):(%d+):(%d+)$')
  return tonumber(level), tonumber(since), tonumber(old_unit)
end

local function format(level, since)
  return ('%d:%d:%d'):format(level, since, unit)
end

local function decide(held, since, old_unit, _, cost)
  local at, level, changed, exists = now, 0, false, held
  if not exists then
    held, since = 0, now
  else
    if old_unit ~= unit then held = ceil(held / old_unit * unit) end
    if since <= now then
      level = max(held - floor_div((now - since) * gain, span), 0)
    else
      level = held
      if since - now <= tolerance then
        at = since
      else
        since, changed = now, true
      end
    end
  end
  local free = level < full and floor_div(full - level, unit) or 0
  if op == TAKE and cost > 0 and cost <= free then -- the common case, without the calls that the others need
    held = level + cost * unit
    return true, cost, free - cost, 0, at + drain_us(held) - now, held, at, unit
  end
  local moved = moved_units(op, cost, free)
  if moved ~= 0 and (moved > 0 or exists) then
    held = min(max(level + moved * unit, 0), MAX_EXACT)
    free = held < full and floor_div(full - held, unit) or 0
    return true, max(moved, 0), free, 0, at + drain_us(held) - now, held, at, unit
  end
  local unmet = unmet_units(op, cost, free)
  local retry_us = unmet > 0 and since + drain_us(held + unmet * unit - full) - now or 0
  return changed, 0, free, retry_us, max(since + drain_us(held) - now, 0), exists and held, since, unit
end
-- include "lib/batch.lua"
