-- Leaves a queue: gives back the charge of the last request in it.
--
-- KEYS  the bucket of a leaky_bucket.
-- ARGV  the instant, as for charges; the cell that the charge left, as text; the numbers of the
--       algorithm, which its file lists, for the charge's units.
-- Reply '1' if it was given back, '0' if later requests have queued behind it.

local b = {key = KEYS[1], kind = kinds.leaky_bucket, at = 2}
local is_read, failure = pcall(read_cell, b)
if not is_read then return type(failure) == 'table' and failure or redis.error_reply(failure) end
if b.expires <= now or b.state ~= ARGV[2] then return '0' end
write_cell(b, b.kind.less(b))
return '1'
