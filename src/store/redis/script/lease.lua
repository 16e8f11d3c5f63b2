-- Leases: renews or returns them.
--
-- KEYS  the key of each lease; a key may come several times.
-- ARGV  the instant, as for charges; `renew` or `give_back`; the time to live from then on, in
--       microseconds; then for each lease its id and its units.
-- Reply for each lease '1' if it existed, '0' if it had been returned or had expired, and '-' for a
--       key of another program, which stays as it is; an error if all keys are. A renewal takes an
--       expired lease again even without room: its units are in use.

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

-- The units in use by key; false for a key of another program.
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
