-- Settles a charge once the cost of the request is known: charges missing units, into debt if need
-- be, or gives units back, except those that would have been refilled meanwhile.
--
-- KEYS  the bucket.
-- ARGV  the instant, as for charges; `owe`, `give_back` or `keep`; the number of units;
--       the kind of algorithm; the recipe, up to and with its `|`;
--       the reserved units, and the start of the bucket's count of unsettled units, '' without a
--       count; the cell that the charge left, as three numbers, which are 0 for a fixed window under
--       another recipe than the charge's; its instant; the units of the
--       charge, and the earlier units that were unsettled then: for rates as spans of two numbers;
--       the numbers of the algorithm, which its file lists, for these units.
-- Reply '1' if it is settled; an instant if a new window would be of another calendar period, and an
--       instant and a recipe if the bucket is under that one by now: then nothing was charged.

local b = {key = KEYS[1], cost = ARGV[3] + 0.0, kind = kinds[ARGV[4]], recipe = ARGV[5], at = 15, is_settled = true}
local reserved, born = ARGV[6] + 0.0, tonumber(ARGV[7])
b.then_expires, b.then_a, b.then_b = ARGV[8] + 0.0, ARGV[9] + 0.0, ARGV[10] + 0.0
b.at_charge = ARGV[11] + 0.0
b.alone, b.alone_rest, b.others, b.others_rest = ARGV[12] + 0.0, ARGV[13] + 0.0, ARGV[14] + 0.0, ARGV[15] + 0.0

local is_read, failure = pcall(b.kind.read, b)
if not is_read then return type(failure) == 'table' and failure or redis.error_reply(failure) end
if b.foreign then return {digits(now), string.match(b.foreign, '^[%d.]+')} end
if ARGV[2] == 'owe' and b.misfit then return digits(now) end
local is_live = b.expires > now
local is_its_own = is_live and born and born == b.since
b.is_its_own = is_its_own
if is_its_own then b.unsettled = math.max(0, b.unsettled - reserved) end
local expires, one, two
if ARGV[2] == 'owe' then
  expires, one, two = b.kind.debt(b)
elseif ARGV[2] == 'give_back' and is_live and (not born or is_its_own) then
  if b.kind.take_back then b.kind.take_back(b) return '1' end
  expires, one, two = b.kind.less(b)
end
if expires then
  write_cell(b, expires, one, two)
elseif is_live and born then
  write_cell(b, b.expires, b.a, b.b)
end
return '1'
