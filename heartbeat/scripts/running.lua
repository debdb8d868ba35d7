-- KEYS: leases. ARGV: ids. Answers 1 or 0 for each: does its lease run?
local answer = {}
for i, id in ipairs(ARGV) do
  local s = redis.call('ZSCORE', KEYS[1], id)
  answer[i] = (s and tonumber(s) > now) and 1 or 0
end
return answer
