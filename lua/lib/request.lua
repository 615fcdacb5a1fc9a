-- What is asked: ARGV is the verb, the rule's PARAMS numbers, and the costs, one for each key or one for all. Ten more
-- than the verb says that one caller asked for all keys: a key that is not ours then keeps the others from being
-- charged.
local op = tonumber(ARGV[1]) % 10
local one_caller = tonumber(ARGV[1]) >= 10
local param = {}
for i = 1, PARAMS do param[i] = tonumber(ARGV[i + 1]) end
local common_cost = #ARGV == PARAMS + 2 and tonumber(ARGV[PARAMS + 2])

local function cost_of(i)
  return common_cost or tonumber(ARGV[PARAMS + 1 + i])
end

-- The answer for each key: granted, remaining, retry_us, reset_us. Granted is -1 for a value that is not ours.
local reply = {}
local spoilt = false

local function answer(i, granted, remaining, retry_us, reset_us)
  local n = 4 * i
  reply[n - 3], reply[n - 2], reply[n - 1], reply[n] = granted, remaining, retry_us, reset_us
end

local function answer_foreign(i)
  answer(i, -1, 0, 0, 0)
  spoilt = one_caller
end

if op == RESET then
  redis.call('DEL', unpack(KEYS))
  for i = 1, #KEYS do answer(i, 0, 0, 0, 0) end
  return reply
end

-- In milliseconds, rounded up. An expiry of 0 would delete the key.
local function expiry(reset_us)
  return ('%d'):format(max(ceil(reset_us / 1000), 1))
end

-- A reply that is an error: nil when the key holds another type of value, raised when it is about anything else.
local function checked(value)
  if type(value) == 'table' and value.err then
    if value.err:find('WRONGTYPE', 1, true) then return nil end
    error(value.err, 0)
  end
  return value
end

-- Give an expiry to a key that was robbed of it.
local function mend_expiry(key, reset_us)
  if redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, expiry(reset_us)) end
end
