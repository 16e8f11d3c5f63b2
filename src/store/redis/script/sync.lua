-- Tells the others what a node has charged to buckets in an epoch of each, and the node what all the others have. May be
-- repeated.
--
-- KEYS  the hashes of the buckets' epochs: units by node.
-- ARGV  the node; for each key the units that it has charged in all, which never become fewer here, and milliseconds to
--       live.
-- Reply for each key the units of all others, or why they are unknown where something else has that name.

local answers = {}
for place, key in ipairs(KEYS) do
  local totals = redis.pcall('HGETALL', key)
  if totals.err and not string.find(totals.err, 'WRONGTYPE', 1, true) then return totals end
  if totals.err then
    answers[place] = totals.err
  else
    local own, others = tonumber(ARGV[2 * place]), 0
    for i = 1, #totals, 2 do
      local total = tonumber(totals[i + 1]) or 0
      if totals[i] == ARGV[1] then own = math.max(own, total) else others = others + total end
    end
    if own > 0 then
      redis.call('HSET', key, ARGV[1], string.format('%.0f', own))
      redis.call('PEXPIRE', key, ARGV[2 * place + 1])
    end
    answers[place] = string.format('%.0f', others)
  end
end
return answers
