-- Settles a charge once the cost of the request is known: charges missing units, into debt if need
-- be, or gives units back, except those that would have been refilled meanwhile.
--
-- KEYS  the bucket.
-- ARGV  the instant, as for charges; `owe`, `give_back` or `keep`; the number of units;
--       the kind of algorithm; the reserved units, and the start of the bucket's count of unsettled
--       units, '' without a count; the cell that the charge left, as three numbers; its instant; the
--       units of the charge, and the earlier units that were unsettled then: for rates as spans of
--       two numbers;
--       the numbers of the algorithm, which its file lists, for these units.
-- Reply '1' if it is settled; an instant if a new window would be of another calendar period: then
--       nothing was charged.

local b = {key = KEYS[1], cost = ARGV[3] + 0.0, kind = kinds[ARGV[4]], at = 14, is_settled = true}
local reserved, born = ARGV[5] + 0.0, tonumber(ARGV[6])
b.then_expires, b.then_a, b.then_b = ARGV[7] + 0.0, ARGV[8] + 0.0, ARGV[9] + 0.0
b.at_charge = ARGV[10] + 0.0
b.alone, b.alone_rest, b.others, b.others_rest = ARGV[11] + 0.0, ARGV[12] + 0.0, ARGV[13] + 0.0, ARGV[14] + 0.0

local is_read, failure = pcall(b.kind.read, b)
if not is_read then return type(failure) == 'table' and failure or redis.error_reply(failure) end
if ARGV[2] == 'owe' and b.misfit then return digits(now) end
local is_live = b.expires > now
local is_its_own = is_live and born and born == b.since
if is_its_own then b.unsettled = math.max(0, b.unsettled - reserved) end
local expires, one, two
if ARGV[2] == 'owe' then
  expires, one, two = b.kind.debt(b)
elseif ARGV[2] == 'give_back' and is_live and (not born or is_its_own) then
  if b.kind.take_back then b.kind.take_back(b) return '1' end
  expires, one, two = b.kind.less(b)
end
if not expires and is_live and born then expires, one, two = b.expires, b.a, b.b end
if not expires then return '1' end
-- A settlement is no admission: the value keeps the rate under which it recovers.
if b.rate and expires > 0 then
  expires, one = b.kind.convert(b, expires, one, number(b, b.kind.rate), b.rate)
end
write_cell(b, expires, one, two, b.rate and digits(b.rate))
return '1'
