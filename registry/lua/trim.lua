-- trim: KEYS: at, log   ARGV: max length, length after a trim   → length
local epoch, base, len = look()
if not epoch then return 0 end
base, len = trim(base, len, tonumber(ARGV[1]), tonumber(ARGV[2]))
return len
