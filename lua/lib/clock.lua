-- The server's clock, read once: inside a script TIME may go on.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
