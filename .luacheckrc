-- The files in lua/ are pieces of scripts: what one of them defines, another uses. Check the scripts as they are sent:
--   python -m tests.support.assembled_lua DIRECTORY && luacheck DIRECTORY
std = "lua51"
globals = {}
read_globals = { "KEYS", "ARGV", "redis" }
max_line_length = 120
