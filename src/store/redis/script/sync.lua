-- Tells the others what a node has charged to a bucket in an epoch, and the node what all the others have. May be repeated.
--
-- KEYS  the hash of the bucket's epoch: units by node.
-- ARGV  the node; the units that it has charged in all, which never become fewer here; milliseconds to live.
-- Reply the units of all others.

local own = tonumber(ARGV[2])
local others = 0
local totals = redis.call('HGETALL', KEYS[1])
for i = 1, #totals, 2 do
  local total = tonumber(totals[i + 1]) or 0
  if totals[i] == ARGV[1] then own = math.max(own, total) else others = others + total end
end
if own > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', own))
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return string.format('%.0f', others)
