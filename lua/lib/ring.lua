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

local function header(log, oldest)
  return ('%07d%07d%07d%016d%016d'):format(log.capacity, oldest, log.used + log.fresh, log.excess, log.last)
end

-- A small log as a whole, laid out anew from its first slot.
local function whole_text(log, limit)
  local from, past, turn = log.oldest, log.oldest + log.used, log.capacity
  local units = bytes(log, at_slot(from), at_slot(min(past, turn)))
  if past > turn then units = units .. bytes(log, HEADER, at_slot(past - turn)) end
  log.capacity = limit
  return header(log, 0) .. units .. encode(log.at):rep(log.fresh)
end

-- Redis doubles a string that grows. A large log begins at its full length halved a few times, and each write stops at
-- the next of these lengths before it goes on with one slot: then the last doubling ends where the ring does.
local function length_above(log, size)
  local length = at_slot(log.capacity)
  while length / 2 >= size do length = ceil(length / 2) end
  return length
end

-- The start of a large one, with its first units unless they are many.
local function started(log, limit)
  log.capacity = limit
  local text = header(log, 0)
  if log.fresh < PIECE then
    text = text .. encode(log.at):rep(log.fresh)
    log.fresh = 0
  end
  return text .. ('\0'):rep(length_above(log, max(#text, 256)) - #text)
end

local function move(log, from, to, count)
  for done = 0, count - 1, PIECE do
    local piece = bytes(log, at_slot(from + done), at_slot(from + min(done + PIECE, count)))
    redis.call('SETRANGE', log.key, at_slot(to + done), piece)
  end
end

-- Give a ring more slots: what stood at its start, behind its end, moves up to follow on.
local function widen(log, limit)
  local wrapped, room = log.oldest + log.used - log.capacity, limit - log.capacity
  if wrapped > 0 then
    move(log, 0, log.capacity, min(wrapped, room))
    if wrapped > room then move(log, room, 0, wrapped - room) end
  end
  log.capacity = limit
end

-- Write the fresh units behind the used ones, and the header.
local function write_in_place(log)
  local slot = encode(log.at)
  local piece = log.fresh >= PIECE and slot:rep(PIECE)
  local to, left = (log.oldest + log.used) % log.capacity, log.fresh
  while left > 0 do
    local count = min(left, PIECE, log.capacity - to)
    if count > 1 then
      local room = length_above(log, at_slot(to) + 1) - at_slot(to)
      count = max(min(count, (room - room % SLOT) / SLOT), 1)
    end
    redis.call('SETRANGE', log.key, at_slot(to), count == PIECE and piece or slot:rep(count))
    to, left = (to + count) % log.capacity, left - count
  end
  redis.call('SETRANGE', log.key, 0, header(log, log.oldest))
end

-- Write what has changed. The order keeps a refused command from leaving half a write: an empty SETRANGE, which a full
-- memory or a missing right refuses before anything is done; then every expiry; then the units.
local function write_logs(order, logs, resets, limit)
  local new, grown = {}, {}
  for _, key in ipairs(order) do
    local log = logs[key]
    if log.changed then
      local list = (limit <= WHOLE or not log.exists) and new or grown
      list[#list + 1] = log
    elseif log.exists then
      mend_expiry(key, resets[key])
    end
  end
  local any = grown[1] or new[1]
  if limit > WHOLE and any then redis.call('SETRANGE', any.key, 0, '') end
  for _, log in ipairs(grown) do redis.call('PEXPIRE', log.key, expiry(resets[log.key])) end
  for _, log in ipairs(new) do
    local text = limit <= WHOLE and whole_text(log, limit) or started(log, limit)
    redis.call('SET', log.key, text, 'PX', expiry(resets[log.key]))
    if limit > WHOLE and log.fresh > 0 then grown[#grown + 1] = log end
  end
  for _, log in ipairs(grown) do
    if log.capacity < limit then widen(log, limit) end
    write_in_place(log)
  end
end
