-- Lifts the ban of a key that machines share, and forgets its strikes.
--
-- KEYS  the stream of the policy's bans; the record of the key.
-- ARGV  the instant, as for charges; the fingerprint of the key; for how many microseconds machines
--       may still report the ban.
-- Reply '1'.
--
-- The record of a lifted ban has no bans, and the instant of the lifting as their end: earlier bans
-- and strikes that machines report late do not count. The entry of the stream has the number 0.

local stream, record = KEYS[1], KEYS[2]
redis.call('SET', record, '0 ' .. digits(now) .. ' ' .. digits(now) .. '|', 'PXAT', deadline(now + ARGV[3]))
redis.call('XADD', stream, 'MAXLEN', '~', 65536, '*', 'key', ARGV[2], 'ban', '0', 'ends', digits(now))
local left = redis.call('PTTL', stream)
if left < 0 or left * 1000 < ARGV[3] + 0.0 then redis.call('PEXPIREAT', stream, deadline(now + ARGV[3])) end
return '1'
