-- Leaves a queue before the turn has come: gives back what the last in line was charged.
--
-- KEYS  the bucket of a leaky_bucket.
-- ARGV  the instant, as for charges; the recipe, up to and with its `|`; the cell that the charge left, as text; `limit`, and
--       as `step` and `step_rest` what it took.
-- Reply '1' if it was given back, '0' where others came after.

local b = {key = KEYS[1], recipe = ARGV[2]}
b.limit, b.step, b.step_rest = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

set_time(ARGV[1])
local _, failure = attempt(function() cells.read(b) end)
if failure then return failure end
if b.expires <= now or cells.told(b) ~= ARGV[3] then return '0' end
put_cell(b, kind_of('leaky_bucket').less(b))
return '1'
