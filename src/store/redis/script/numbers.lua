-- Numbers. Lua has doubles: integers are exact up to 2^53, and so is every instant and every sum of an instant and a
-- window here. A quotient of two of them, rounded down, is exact as well. A product need not be: see `wide`.
-- No float is ever stored or replied.

local floor = math.floor

local function digits(number) return string.format('%.0f', number) end

-- 4 bytes, the highest first.
local function word(number)
  return string.char(floor(number / 16777216) % 256, floor(number / 65536) % 256, floor(number / 256) % 256, number % 256)
end

-- What the 4 bytes from this place on say; 0 beyond the end.
local function word_at(bytes, place)
  local a, b, c, d = string.byte(bytes, place, place + 3)
  if not d then return 0 end
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- a * b, for a < 2^32 and b <= 2^52, as a high and a low part of 52 bits: by limbs of 26 bits.
local function wide(a, b)
  local limb = 67108864
  local a1, b1 = floor(a / limb), floor(b / limb)
  local a0, b0 = a - a1 * limb, b - b1 * limb
  local low = a0 * b0
  local middle = a1 * b0 + a0 * b1 + floor(low / limb)
  return a1 * b1 + floor(middle / limb), middle % limb * limb + low % limb
end

-- Whether a * b <= c * d, within the same bounds.
local function is_at_most(a, b, c, d)
  local left, left_low = wide(a, b)
  local right, right_low = wide(c, d)
  if left ~= right then return left < right end
  return left_low <= right_low
end
