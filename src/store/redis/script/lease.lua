-- Leases: renews them, or gives them back.
--
-- KEYS  the key of each lease; one may come several times.
-- ARGV  the instant, as for charges; `renew` or `give_back`; how long they last from then on, in microseconds;
--       then for each lease its id and its units.
-- Reply for each lease '1' if it was there, '0' if it had been given back, or had expired, and '-' where its key is not ours, which
--       is left alone; an error if none is. One that had expired is taken again by who renews it, whether there is room or
--       not: it is in use, after all.

local function lease_at(i)
  return {key = KEYS[i], member = ARGV[2 + 2 * i] .. ':' .. ARGV[3 + 2 * i], units = tonumber(ARGV[3 + 2 * i])}
end

local function renew_or_give_back(b)
  local is_there = redis.call('ZSCORE', b.key, b.member)
  if ARGV[2] == 'renew' then
    redis.call('ZADD', b.key, digits(now + ARGV[3]), b.member)
    if not is_there then b.total = b.total + b.units end
  elseif is_there then
    redis.call('ZREM', b.key, b.member)
    b.total = b.total - b.units
  end
  kinds.concurrency.write(b, b.total, {})
  return is_there and '1' or '0'
end

-- Of each key, false where it is not ours.
local total_of, is_any, failure = {}, false, nil
for i in ipairs(KEYS) do
  local b = lease_at(i)
  local is_read, total = pcall(kinds.concurrency.total_of, b)
  total_of[b.key] = is_read and total
  if is_read then is_any = true else failure = total end
end
if not is_any then return type(failure) == 'table' and failure or redis.error_reply(failure) end
local reply = {}
for i in ipairs(KEYS) do
  local b = lease_at(i)
  b.total = total_of[b.key]
  reply[i] = b.total and renew_or_give_back(b) or '-'
  total_of[b.key] = b.total
end
return reply
