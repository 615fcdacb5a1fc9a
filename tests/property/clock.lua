-- The tests' own clock, in place of the server's: a key in microseconds.
local now = tonumber(redis.call('GET', 'clock'))
