-- The room in a sliding window.

-- a * b, for a < 2^32 and b <= 2^52, as a high and a low part of 52 bits, by limbs of 26 bits.
local function wide(a, b)
  local limb = 67108864
  local a1, b1 = floor(a / limb), floor(b / limb)
  local a0, b0 = a - a1 * limb, b - b1 * limb
  local low = a0 * b0
  local middle = a1 * b0 + a0 * b1 + floor(low / limb)
  return a1 * b1 + floor(middle / limb), middle % limb * limb + low % limb
end

-- True if a * b <= c * d, within the same bounds.
local function is_at_most(a, b, c, d)
  local left, left_low = wide(a, b)
  local right, right_low = wide(c, d)
  if left ~= right then return left < right end
  return left_low <= right_low
end

-- True if the `needed` units fit, beside the counter of the oldest part and the sum of the others.
-- The first numbers of a sliding window are `limit`, `part`, `lasting`, and `oldest`, the weight of
-- the oldest part.
local function has_room(b, oldest, others, elapsed)
  local limit, part, rule = number(b, 1), number(b, 2), ARGV[b.at + 4]
  local room = limit - others - b.needed
  if room < 0 then return false end
  if rule == 'ignored' then return true end
  if rule == 'whole' then return oldest <= room end
  return is_at_most(oldest, part - elapsed, room, part)
end
