-- A ring of times in one string. The header is 53 digits: capacity, oldest, used (7 each), excess, last (16 each).
--   capacity  slots in the ring             oldest  the slot of the oldest unit that counts
--   used      units that count, in order    excess  units overwritten while they counted
--   last      the newest unit's time
-- A slot is a time in microseconds as seven bytes, the highest first. The `fresh` units of a log in hand stand behind
-- its `used` ones, at its time `at`, and are not in the string yet.
local HEADER, SLOT = 53, 7

-- Up to this limit a log is read and written as a whole: fewer commands save more than the few bytes cost.
local WHOLE = 128

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

-- In two steps, because one of a million would take longer than all the rest.
local function repeated(text, times)
  if times == 1 then return text end
  local rest = times % 1000
  return text:rep(1000):rep((times - rest) / 1000) .. text:rep(rest)
end

-- `whole` is the log's string where it was read already, false where there is none, nil to read no more than is needed.
local function read_log(key, whole)
  local head = whole
  if whole == nil then head = checked(redis.pcall('GETRANGE', key, 0, HEADER - 1)) end
  if head == '' or head == false then
    return { key = key, capacity = 0, oldest = 0, used = 0, excess = 0, last = 0, fresh = 0 }
  end
  local capacity, oldest, used, excess, last
  if head then capacity, oldest, used, excess, last = head:match(HEADER_FORM) end
  if not capacity then return { foreign = true } end
  return {
    key = key, exists = true, fresh = 0, whole = whole, capacity = tonumber(capacity), oldest = tonumber(oldest),
    used = tonumber(used), excess = tonumber(excess), last = tonumber(last),
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
  local from = HEADER + SLOT * ((log.oldest + nth - 1) % log.capacity)
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

local function header(log, capacity, oldest)
  return ('%07d%07d%07d%016d%016d'):format(capacity, oldest, log.used + log.fresh, log.excess, log.last)
end

-- The used units in order.
local function used_slots(log)
  local from, past = log.oldest, log.oldest + log.used
  local turn = log.capacity
  if past <= turn then return bytes(log, HEADER + SLOT * from, HEADER + SLOT * past) end
  return bytes(log, HEADER + SLOT * from, HEADER + SLOT * turn) .. bytes(log, HEADER, HEADER + SLOT * (past - turn))
end

-- A whole new string. Redis doubles a string that grows, so a large one starts as long as the full one halved a few
-- times: the last doubling then ends where the ring does.
local function laid_out(log, capacity)
  local text = header(log, capacity, 0) .. used_slots(log) .. repeated(encode(log.at), log.fresh)
  if capacity <= WHOLE then return text end
  local length = HEADER + SLOT * capacity
  while length / 2 >= max(#text, 128) do length = ceil(length / 2) end
  return text .. ('\0'):rep(length - #text)
end

local function write_in_place(log)
  if log.fresh > 0 then
    local from = (log.oldest + log.used) % log.capacity
    local to_end = min(log.fresh, log.capacity - from)
    local slot = encode(log.at)
    redis.call('SETRANGE', log.key, HEADER + SLOT * from, repeated(slot, to_end))
    if log.fresh > to_end then redis.call('SETRANGE', log.key, HEADER, repeated(slot, log.fresh - to_end)) end
  end
  redis.call('SETRANGE', log.key, 0, header(log, log.capacity, log.oldest))
end

-- Write what has changed. The order keeps a refused command from leaving half a write: an empty SETRANGE, which a full
-- memory or a missing right refuses before anything is done; then every expiry; then the units.
local function write_logs(order, logs, resets, limit)
  local grown, laid = {}, {}
  for _, key in ipairs(order) do
    local log = logs[key]
    if log.changed then
      local list = log.exists and log.capacity == limit and not log.whole and grown or laid
      list[#list + 1] = log
    elseif log.exists then
      mend_expiry(key, resets[key])
    end
  end
  if grown[1] then redis.call('SETRANGE', grown[1].key, 0, '') end
  for _, log in ipairs(grown) do redis.call('PEXPIRE', log.key, expiry(resets[log.key])) end
  for _, log in ipairs(laid) do redis.call('SET', log.key, laid_out(log, limit), 'PX', expiry(resets[log.key])) end
  for _, log in ipairs(grown) do write_in_place(log) end
end
