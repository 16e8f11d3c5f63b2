-- Numbers. Lua has doubles: integers are exact up to 2^53. So is every instant, every sum of an
-- instant and a window here, and every quotient of two of them, rounded down. A product need not
-- be: see `wide`. No float is ever stored or replied.

local floor, format = math.floor, string.format

-- In two halves, as a `long` may have 32 bits; `%.0f` takes half as long again.
local function digits(number)
  if number == 0 then return '0' end
  if number < 100000000 then return format('%d', number) end
  return format('%d%08d', floor(number / 100000000), number % 100000000)
end
