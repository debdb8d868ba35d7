-- holds: KEYS: at, log   ARGV: epoch, seq, id   → 1: that id is there, 2: the log begins later, 0: neither
local epoch, base, len = look()
local seq = tonumber(ARGV[2])
if epoch ~= ARGV[1] then return 0 end
if seq < base then return 2 end
if id_at(base, len, seq) == ARGV[3] then return 1 end
return 0
