-- Sliding window counter: this window's units, and the last window's in proportion to their overlap.
-- KEYS   the counters
-- ARGV   verb; limit, window in us, us to a step, steps of a window, most units of a counter, clock tolerance in us;
--        costs
-- Reply  four integers for each key: granted, remaining, retry_us, reset_us
-- State  "last window's units:this window's units:written_us:window in us then"
-- The twin of aiolimit/algorithms/sliding_window.py, which explains the arithmetic.
local PARAMS = 6
-- include "lib/clock.lua"
-- include "lib/arithmetic.lua"
-- include "lib/request.lua"
local limit, window, tick, steps, most, tolerance = unpack(param)

local function parse(text)
  local previous, current, since, old_window = text:match('^(%d+):(%d+):(%d+):(%d+)$')
  return tonumber(previous), tonumber(current), tonumber(since), tonumber(old_window)
end

local function format(previous, current, since)
  return ('%d:%d:%d:%d'):format(previous, current, since, window)
end

local function free_units(previous, current, left)
  return floor_div(max((limit - current) * steps - previous * left, 0), steps)
end

local function fits_at(previous, current, start, cost)
  local room = limit - cost - current
  if room < 0 then start, previous, room = start + window, current, limit - cost end
  local overlap = floor_div(room * steps, previous)
  return start + min(max(steps - overlap, 0) * tick, window)
end

local function decide(stored_previous, stored_current, since, old_window, cost)
  local at, changed, exists = now, false, stored_previous
  local previous, current = 0, 0
  if not exists then
    since = now
  else
    if old_window ~= window then
      stored_current = ceil(stored_previous * ((old_window - fmod(since, old_window)) / old_window)) + stored_current
      stored_previous = 0
    end
    stored_previous, stored_current = min(stored_previous, most), min(stored_current, most)
    previous, current = stored_previous, stored_current
    if since > now then
      if since - now <= tolerance then
        at = since
      else
        since, changed = now, true
      end
    end
  end
  local start = at - fmod(at, window)
  if since < start then previous, current = since >= start - window and current or 0, 0 end
  local left = steps - floor_div(at - start, tick)
  local free = free_units(previous, current, left)
  local moved = moved_units(op, cost, free)
  if moved ~= 0 and (moved > 0 or exists) then
    previous = max(previous + min(current + moved, 0), 0)
    current = min(max(current + moved, 0), most)
    stored_previous, stored_current, since, changed = previous, current, at, true
    free = free_units(previous, current, left)
  end
  local unmet = moved == 0 and unmet_units(op, cost, free) or 0
  local retry_us = unmet > 0 and fits_at(previous, current, start, unmet) - now or 0
  local ends = current > 0 and start + 2 * window or previous > 0 and start + window or now
  return changed, max(moved, 0), free, retry_us, ends - now, stored_previous, stored_current, since, window
end
-- include "lib/batch.lua"
