-- Settles a charge once it is known what a request costs: charges the rest, into debt if need be, or gives some of it back, as
-- far as it has not come back with time.
--
-- KEYS  the bucket.
-- ARGV  the instant, as for charges; `owe`, `give_back` or `keep`; how many units;
--       the kind of algorithm; the recipe, up to and with its `|`;
--       how many units were reserved, and since when those of the bucket are counted: '' where they are not;
--       the cell that the charge left, as three numbers; its instant; how many units it took, and how many earlier charges had
--       taken that were then still to be settled: of rates as spans of two numbers;
--       the numbers of the algorithm, as its file says, for so many units.
-- Reply '1' if it is settled, '0' if the bucket is under another recipe by now: then the charge stands as it was made. An
--       instant where a window that is opened would be of another period of a calendar: then nothing was charged.

local b = {key = KEYS[1], cost = ARGV[3] + 0.0, kind = kinds[ARGV[4]], recipe = ARGV[5], at = 15, is_settled = true}
local reserved, born = ARGV[6] + 0.0, tonumber(ARGV[7])
b.then_expires, b.then_a, b.then_b = ARGV[8] + 0.0, ARGV[9] + 0.0, ARGV[10] + 0.0
b.at_charge = ARGV[11] + 0.0
b.alone, b.alone_rest, b.others, b.others_rest = ARGV[12] + 0.0, ARGV[13] + 0.0, ARGV[14] + 0.0, ARGV[15] + 0.0

local is_read, failure = pcall(b.kind.read, b)
if not is_read then return type(failure) == 'table' and failure or redis.error_reply(failure) end
if b.other then return '0' end
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
if expires then
  write_cell(b, expires, one, two)
elseif is_live and born then
  write_cell(b, b.expires, b.a, b.b)
end
return '1'
