-- Fixed window: a counter that belongs to the window it was last charged in.
-- KEYS   the counters
-- ARGV   verb; limit, window in us, clock tolerance in us; costs
-- Reply  four integers for each key: granted, remaining, retry_us, reset_us
-- State  "units:written_us"
-- The twin of aiolimit/algorithms/fixed_window.py.
local PARAMS = 3
-- include "lib/clock.lua"
-- include "lib/arithmetic.lua"
-- include "lib/request.lua"
local limit, window, tolerance = unpack(param)

local function parse(text)
  local used, since = text:match('^(%d+):(%d+)$')
  return tonumber(used), tonumber(since)
end

local function format(used, since)
  return ('%d:%d'):format(used, since)
end

local function decide(used, since, _, _, cost)
  local at, changed, exists = now, false, used
  if not exists then used, since = 0, now end
  if since > now then
    if since - now <= tolerance then
      at = since
    else
      since, changed = now, true
    end
  end
  local start = at - fmod(at, window)
  local stored = used
  if since < start then used = 0 end
  local free = max(limit - used, 0)
  local moved = moved_units(op, cost, free)
  if moved ~= 0 and (moved > 0 or exists) then
    used = min(max(used + moved, 0), MAX_EXACT)
    stored, since, changed, exists = used, at, true, true
    free = max(limit - used, 0)
  end
  local until_next = start + window - now
  local retry_us = moved == 0 and unmet_units(op, cost, free) > 0 and until_next or 0
  return changed, max(moved, 0), free, retry_us, used > 0 and until_next or 0, exists and stored, since
end
-- include "lib/batch.lua"
