-- Records a node's algorithm for some policies, and replies the algorithms that nodes have
-- recorded.
--
-- KEYS  a hash for each policy: the instant of the last note in milliseconds, by algorithm.
-- ARGV  the time to live of a note in milliseconds; then the node's algorithm for each key.
-- Reply the instant of these notes; then for each key the algorithms and instants of earlier notes,
--       separated by spaces, or nothing if another program uses the name.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local reply = {now}
for place, key in ipairs(KEYS) do
  local notes = redis.pcall('HGETALL', key)
  if notes.err and not string.find(notes.err, 'WRONGTYPE', 1, true) then return notes end
  if not notes.err then
    redis.call('HSET', key, ARGV[place + 1], now)
    redis.call('PEXPIRE', key, ARGV[1])
  end
  reply[place + 1] = table.concat(notes, ' ')
end
return reply
