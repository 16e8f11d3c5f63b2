-- Replaces the values of keys, as an operator asks, or only reads them.
--
-- KEYS  the keys.
-- ARGV  the instant, as for charges; `read`, `delete`, or `grant` with the granted units, and for how
--       many microseconds they last.
-- Reply the instant; then for each key its earlier value, or nothing.

local reply = {digits(now)}
for place, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'table' and value.err then return value end
  reply[place + 1] = value or ''
end
for place, key in ipairs(KEYS) do
  if ARGV[2] == 'delete' then
    redis.call('DEL', key)
  elseif ARGV[2] == 'grant' then
    local ends = now + ARGV[4]
    redis.call('SET', key, digits(ends) .. ' ' .. ARGV[3] .. ' ' .. ARGV[3], 'PXAT', deadline(ends))
  end
end
return reply
