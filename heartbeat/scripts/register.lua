-- KEYS: leases. ARGV: name prefix, id, lease (ms).
-- Answers the new value, then member and "was running" of each superseded one.
local value = whole(now + ARGV[3])
local answer = {value}
local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local member, score = all[i], tonumber(all[i + 1])
  if member ~= ARGV[2] and score ~= 0 and named(member, ARGV[1]) then
    redis.call('ZADD', KEYS[1], '0', member)
    answer[#answer + 1] = member
    answer[#answer + 1] = score > now and '1' or '0'
  end
end
redis.call('ZADD', KEYS[1], value, ARGV[2])
return answer
