-- Records the charges of a node to buckets, in an epoch of each, and replies those of all others.
-- It may be repeated.
--
-- KEYS  the hashes of the buckets' epochs: units by node.
-- ARGV  the node; the time to live of its first total, in milliseconds; its total for each bucket,
--       which never falls here, separated by spaces; for each bucket the instant at which an
--       operator last reset it, as far as the node knows, or 0, separated by spaces.
-- Reply for each key the total of all others and the node's earlier one, with a comma between; or
--       '@' and the instant of a later reset, of which the node has to hear before its total
--       counts; or '-' if another program uses the name, separated by spaces; and the type error, or
--       nothing.
--
-- The field `@` has the instant of the last reset after an `r`. Totals from before do not count.

local charged, resets, answers, failure = {}, {}, {}, ''
for units in string.gmatch(ARGV[3], '%d+') do charged[#charged + 1] = tonumber(units) end
for reset in string.gmatch(ARGV[4], '%d+') do resets[#resets + 1] = tonumber(reset) end
for place, key in ipairs(KEYS) do
  local totals = redis.pcall('HGETALL', key)
  if totals.err and not string.find(totals.err, 'WRONGTYPE', 1, true) then return totals end
  if totals.err then
    answers[place], failure = '-', totals.err
  else
    local own, known, others, reset = charged[place], 0, 0, 0
    for i = 1, #totals, 2 do
      if totals[i] == '@' then
        reset = tonumber(string.sub(totals[i + 1], 2)) or 0
      else
        local total = tonumber(totals[i + 1]) or 0
        if totals[i] == ARGV[1] then known = total else others = others + total end
      end
    end
    if resets[place] > reset then
      redis.call('DEL', key)
      redis.call('HSET', key, '@', string.format('r%.0f', resets[place]))
      redis.call('PEXPIRE', key, ARGV[2])
      known, others = 0, 0
    end
    if resets[place] < reset then
      answers[place] = string.format('@%.0f', reset)
    else
      -- Each node's first total sets the expiry, at the same instant for all nodes.
      if own > known and redis.call('HSET', key, ARGV[1], string.format('%.0f', own)) == 1 then
        redis.call('PEXPIRE', key, ARGV[2])
      end
      answers[place] = string.format('%.0f,%.0f', others, known)
    end
  end
end
return {table.concat(answers, ' '), failure}
