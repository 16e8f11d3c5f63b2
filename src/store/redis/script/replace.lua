-- Replaces the values of keys, as an operator asks, or only reads them.
--
-- KEYS  the keys.
-- ARGV  the instant, as for charges; `read`, `delete`, or `write` the further arguments: for each key
--       its value, and the instant at which it expires, in microseconds.
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
  elseif ARGV[2] == 'write' then
    redis.call('SET', key, ARGV[1 + 2 * place], 'PXAT', deadline(ARGV[2 + 2 * place] + 0.0))
  end
end
return reply
