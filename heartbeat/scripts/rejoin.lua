-- KEYS: leases. ARGV: name prefix, id, lease (ms), number of own ids, these,
-- then member and value of each other one as seen at the looks before.
-- Answers {'superseded', member}, {'wait', member, value, ...} or {'joined', value}.
local own, seen = {[ARGV[2]] = true}, {}
local last = 4 + ARGV[4]
for i = 5, last do own[ARGV[i]] = true end
for i = last + 1, #ARGV, 2 do seen[ARGV[i]] = tonumber(ARGV[i + 1]) end

local waits, ended = {'wait'}, {}
local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local member, score = all[i], tonumber(all[i + 1])
  if not own[member] and score ~= 0 and named(member, ARGV[1]) then
    if score <= now then
      ended[#ended + 1] = member
    elseif seen[member] and score > seen[member] then
      return {'superseded', member}
    else
      waits[#waits + 1] = member
      waits[#waits + 1] = whole(score)
    end
  end
end
if #waits > 1 then return waits end
-- An ended one that nobody claimed could still beat and go on: two of a name.
for _, member in ipairs(ended) do redis.call('ZADD', KEYS[1], '0', member) end
local value = whole(now + ARGV[3])
redis.call('ZADD', KEYS[1], value, ARGV[2])
return {'joined', value}
