-- Announces to all machines what an operator did to a key.
--
-- KEYS  the stream of announcements.
-- ARGV  the instant, as for charges; the instant at which it happened, or nothing for now; for how
--       many microseconds it matters; the most entries that the stream keeps; then the fields and
--       values of the entry, to which `at` and `keep` are added: the instant at which it happened,
--       and the last one at which it matters.
-- Reply the instant at which it happened.

local stream, at = KEYS[1], ARGV[2] == '' and now or ARGV[2] + 0.0
local keep = at + ARGV[3]
local entry = {'at', digits(at), 'keep', digits(keep)}
for place = 5, #ARGV do entry[#entry + 1] = ARGV[place] end
redis.call('XADD', stream, 'MAXLEN', '~', ARGV[4], '*', unpack(entry))
local left = redis.call('PTTL', stream)
if left < 0 or left * 1000 < keep - now then redis.call('PEXPIREAT', stream, deadline(keep)) end
return digits(at)
