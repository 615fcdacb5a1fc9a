-- A ring of times in one string. The header is 53 digits: capacity, oldest, used (7 each), excess, last (16 each).
--   capacity  slots in the ring             oldest  the slot of the oldest unit that counts
--   used      units that count, in order    excess  units overwritten while they counted
--   last      the newest unit's time
-- A slot is a time in microseconds as seven bytes, the highest first. The `fresh` units of a log in hand stand behind
-- its `used` ones, at its time `at`, and are not in the string yet.
local HEADER, SLOT = 53, 7

-- Up to this limit a log is read and written as a whole: fewer commands save more than the few bytes cost. Above it
-- only what changes is written, in pieces of so many slots: a string of megabytes would take Lua longer than all else.
local WHOLE, PIECE = 128, 10000

local function digits(count)
  return '(' .. ('%d'):rep(count) .. ')'
end

local HEADER_FORM = '^' .. digits(7):rep(3) .. digits(16):rep(2)

local function encode(us)
  local high = floor(us / 16777216)
  local low = us - high * 16777216
  local h1, h2, h3 = floor(high / 16777216), floor(high / 65536) % 256, floor(high / 256) % 256
  return string.char(h1, h2, h3, high % 256, floor(low / 65536), floor(low / 256) % 256, low % 256)
end

local function at_slot(index)
  return HEADER + SLOT * index
end

-- With a `limit` that is small the whole log is read, if it is small itself, and stays at hand as `whole`.
local function read_log(key, limit)
  local past = limit <= WHOLE and at_slot(WHOLE) or HEADER
  local text = checked(redis.pcall('GETRANGE', key, 0, past - 1))
  if text == '' then
    return { key = key, capacity = 0, oldest = 0, used = 0, excess = 0, last = 0, fresh = 0 }
  end
  local capacity, oldest, used, excess, last
  if text then capacity, oldest, used, excess, last = text:match(HEADER_FORM) end
  if not capacity then return { foreign = true } end
  return {
    key = key, exists = true, fresh = 0, whole = limit <= WHOLE and tonumber(capacity) <= WHOLE and text,
    capacity = tonumber(capacity), oldest = tonumber(oldest), used = tonumber(used), excess = tonumber(excess),
    last = tonumber(last),
  }
end

local function drop_oldest(log, units)
  log.oldest, log.used = (log.oldest + units) % log.capacity, log.used - units
end

-- The bytes `from` (0-based) up to `past`, not included.
local function bytes(log, from, past)
  if log.whole then return log.whole:sub(from + 1, past) end
  return from < past and redis.call('GETRANGE', log.key, from, past - 1) or ''
end

-- The time of the nth oldest of the used units.
local function time_of(log, nth)
  local from = at_slot((log.oldest + nth - 1) % log.capacity)
  local a, b, c, d, e, f, g = bytes(log, from, from + SLOT):byte(1, SLOT)
  return (((a * 256 + b) * 256 + c) * 256 + d) * 16777216 + (e * 256 + f) * 256 + g
end

-- How many of the used units are not newer than `bound`. Looks at the oldest first: mostly none or a few have aged.
local function count_until(log, bound)
  if log.used == 0 or time_of(log, 1) > bound then return 0 end
  if log.fresh == 0 and log.last <= bound then return log.used end
  local low, high = 1, 2
  while high <= log.used and time_of(log, high) <= bound do low, high = high, high * 2 end
  high = min(high, log.used + 1)
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    if time_of(log, middle) <= bound then low = middle else high = middle end
  end
  return low
end
