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

local born = tonumber(ARGV[7])
local place = 7
local function number()
  place = place + 1
  return tonumber(ARGV[place]) or ARGV[place]
end

local b = {key = KEYS[1], cost = tonumber(ARGV[3]), rules = kind_of(ARGV[4]), recipe = ARGV[5], is_settled = true}
b.then_expires, b.then_a, b.then_b, b.at = number(), number(), number(), number()
b.alone, b.alone_rest, b.others, b.others_rest = number(), number(), number(), number()
for _, name in ipairs(b.rules.parameters) do b[name] = number() end

set_time(ARGV[1])
local _, failure = attempt(function() b.rules.read(b) end)
if failure then return failure end
if b.other then return '0' end
if ARGV[2] == 'owe' and b.misfit then return digits(now) end
local is_live = b.expires > now
if is_live and born and born == b.since then b.unsettled = math.max(0, b.unsettled - tonumber(ARGV[6])) end
local next
if ARGV[2] == 'owe' then
  next = {b.rules.debt(b)}
elseif ARGV[2] == 'give_back' and is_live and (not born or born == b.since) then
  next = {b.rules.less(b)}
end
if next and next[1] then
  put_cell(b, next[1], next[2], next[3])
elseif is_live and born then
  write_cell(b, b.expires, b.a, b.b)
end
return '1'
