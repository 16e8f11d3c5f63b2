-- Records the charges of a node to buckets, in an epoch of each, and replies those of all others.
-- It may be repeated.
--
-- KEYS  the hashes of the buckets' epochs: units by node.
-- ARGV  the node; the time to live of its first total, in milliseconds; its total for each bucket,
--       which never falls here, separated by spaces.
-- Reply for each key the total of all others and the node's earlier one, with a comma between, or
--       '-' if another program uses the name, separated by spaces; and the type error, or nothing.

local charged, answers, failure = {}, {}, ''
for units in string.gmatch(ARGV[3], '%d+') do charged[#charged + 1] = tonumber(units) end
for place, key in ipairs(KEYS) do
  local totals = redis.pcall('HGETALL', key)
  if totals.err and not string.find(totals.err, 'WRONGTYPE', 1, true) then return totals end
  if totals.err then
    answers[place], failure = '-', totals.err
  else
    local own, known, others = charged[place], 0, 0
    for i = 1, #totals, 2 do
      local total = tonumber(totals[i + 1]) or 0
      if totals[i] == ARGV[1] then known = total else others = others + total end
    end
    -- Each node's first total sets the expiry, at the same instant for all nodes.
    if own > known and redis.call('HSET', key, ARGV[1], string.format('%.0f', own)) == 1 then
      redis.call('PEXPIRE', key, ARGV[2])
    end
    answers[place] = string.format('%.0f,%.0f', others, known)
  end
end
return {table.concat(answers, ' '), failure}
