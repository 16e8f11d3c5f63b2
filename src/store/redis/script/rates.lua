-- gcra, token_bucket and leaky_bucket. The cell is the theoretical arrival time, rounded up to a microsecond, and what
-- the rounding added, over `limit`. Spans are whole microseconds and a rest over `limit`, in two numbers: how far ahead TAT
-- may lie, how far a charge moves it, and how far ahead it may lie in debt.
local LIMIT, TAU, STEP, MOST = 1, 2, 4, 6

-- How far TAT lies ahead.
local function ahead_of(limit, expires, added)
  local ahead = expires - now
  if ahead <= 0 then return 0, 0 end
  if added == 0 then return ahead, 0 end
  return ahead - 1, limit - added
end

-- The cell whose TAT lies so far ahead.
local function arrival(limit, ahead, rest)
  if ahead == 0 and rest == 0 then return 0, 0, 0 end
  if rest == 0 then return now + ahead, 0, 0 end
  return now + ahead + 1, limit - rest, 0
end

local function is_less(ahead, rest, other, other_rest)
  return ahead < other or ahead == other and rest < other_rest
end

local function a_step_further(b, limit, ahead, rest)
  ahead, rest = ahead + number(b, STEP), rest + number(b, STEP + 1)
  if rest < limit then return ahead, rest end
  return ahead + 1, rest - limit
end

local function moved(b)
  local limit = number(b, LIMIT)
  local ahead, rest = a_step_further(b, limit, ahead_of(limit, b.expires, b.a))
  if is_less(number(b, TAU), number(b, TAU + 1), ahead, rest) then return nil end
  return arrival(limit, ahead, rest)
end

-- A span without another: none where that is longer.
local function minus(limit, ahead, rest, less, less_rest)
  if is_less(ahead, rest, less, less_rest) then return 0, 0 end
  if rest >= less_rest then return ahead - less, rest - less_rest end
  return ahead - less - 1, rest + limit - less_rest
end
