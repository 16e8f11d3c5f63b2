-- Tells the others what a node has charged to buckets in an epoch of each, and the node what all the others have. May be
-- repeated.
--
-- KEYS  the hashes of the buckets' epochs: units by node.
-- ARGV  the node; the milliseconds to live of what it is the first to tell; the units that it has charged to each in all, which never
--       become fewer here, separated by spaces.
-- Reply for each key the units of all others and those that the node had told before, with a comma between, or a '-' where
--       something else has that name, separated by spaces; and what that is, or nothing.

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
    -- It is to live as long whoever says so, and whenever.
    if own > known and redis.call('HSET', key, ARGV[1], string.format('%.0f', own)) == 1 then
      redis.call('PEXPIRE', key, ARGV[2])
    end
    answers[place] = string.format('%.0f,%.0f', others, known)
  end
end
return {table.concat(answers, ' '), failure}
