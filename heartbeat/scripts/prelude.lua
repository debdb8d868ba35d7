-- Before every script. Time is Redis' own, so that no instance's clock can keep
-- a lease up or end another's. Whole numbers are written with %.0f: Lua's own
-- conversion turns 13 digits into 1.7e+12 on some engines.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function whole(n) return string.format('%.0f', n) end
-- named: is member an instance of this name ("<name>-" and 12 of a-z0-9)?
-- The length keeps "a" apart from "a-b", whose instances begin with "a-" too.
local function named(member, prefix)
  return #member == #prefix + 12
    and string.sub(member, 1, #prefix) == prefix
    and not string.find(member, '[^a-z0-9]', #prefix + 1)
end
