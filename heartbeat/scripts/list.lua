-- KEYS: leases. Answers now, then member and score of every lease.
local answer = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
table.insert(answer, 1, whole(now))
return answer
