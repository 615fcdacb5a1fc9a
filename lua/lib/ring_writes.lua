-- Writing the ring of lib/ring.lua.
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
