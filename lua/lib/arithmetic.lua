-- Exact integer arithmetic on numbers below 2^53, and the verbs; the twin of aiolimit/algorithms/rule.py.
-- luacheck: push ignore 211 (a script need not use all of it)
local TAKE, UP_TO, PEEK, CHARGE, REFUND, RESET = 0, 1, 2, 3, 4, 5
local MAX_EXACT, MAX_WAIT_US = 9007199254740991, 4503599627370496
local floor, ceil, fmod, max, min = math.floor, math.ceil, math.fmod, math.max, math.min

local function floor_div(x, y)
  return (x - fmod(x, y)) / y
end

local function ceil_div(x, y)
  local rest = fmod(x, y)
  return rest > 0 and (x - rest) / y + 1 or (x - rest) / y
end

-- How many units the question moves when `free` fit: negative for a refund.
local function moved_units(op, cost, free)
  if op == TAKE then return cost <= free and cost or 0 end
  if op == UP_TO then return min(cost, free) end
  if op == CHARGE then return cost end
  return op == REFUND and -cost or 0
end

-- The units to wait for when `free` fit: 0 when the answer is yes.
local function unmet_units(op, cost, free)
  if op == TAKE or op == PEEK then return cost > free and cost or 0 end
  return op == UP_TO and cost > 0 and free == 0 and 1 or 0
end
-- luacheck: pop
