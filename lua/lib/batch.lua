-- Decide for every key whose state is one short text of numbers. The rule gives three functions:
--   parse(text) -> a, b, c, d          nil when the text is not its own
--   decide(a, b, c, d, cost) -> changed, granted, remaining, retry_us, reset_us, a, b, c, d
--   format(a, b, c, d) -> text
-- A key that stands twice sees its own earlier spend and is written once. Nothing is written before all is decided.
local texts = redis.call('MGET', unpack(KEYS))
local first, foreign, written, resets = {}, {}, {}, {}
local as, bs, cs, ds = {}, {}, {}, {}

for i, key in ipairs(KEYS) do
  local at = first[key]
  if not at then
    at = i
    first[key] = i
    -- MGET calls a key of another type missing; GET does not.
    local text = texts[i] or checked(redis.pcall('GET', key))
    if text then as[i], bs[i], cs[i], ds[i] = parse(text) end
    foreign[i] = text == nil or (text and not as[i])
  end
  if foreign[at] then
    answer_foreign(i)
  else
    local changed, granted, remaining, retry_us, reset_us
    changed, granted, remaining, retry_us, reset_us, as[at], bs[at], cs[at], ds[at] =
      decide(as[at], bs[at], cs[at], ds[at], cost_of(i))
    if changed then written[at] = true end
    resets[at] = reset_us
    answer(i, granted, remaining, retry_us, reset_us)
  end
end

if spoilt then return reply end
for key, at in pairs(first) do
  if written[at] then
    redis.call('SET', key, format(as[at], bs[at], cs[at], ds[at]), 'PX', expiry(resets[at]))
  elseif texts[at] and not foreign[at] then
    mend_expiry(key, resets[at])
  end
end
return reply
