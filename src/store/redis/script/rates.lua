-- gcra, token_bucket and leaky_bucket. The cell is the theoretical arrival time (TAT), rounded up
-- to a microsecond, the rounding, over `limit`, and 0. Spans are whole microseconds and a rest over
-- `limit`, in two numbers. The numbers are the limit and three spans: how far ahead TAT may lie,
-- how far a charge moves it, and how far ahead it may lie in debt.
local LIMIT, TAU, STEP, MOST = 1, 2, 4, 6

-- The span from now to TAT.
local function ahead_of(limit, expires, added)
  local ahead = expires - now
  if ahead <= 0 then return 0, 0 end
  if added == 0 then return ahead, 0 end
  return ahead - 1, limit - added
end

-- The cell with TAT this far ahead.
local function cell_at(limit, ahead, rest)
  if ahead == 0 and rest == 0 then return 0, 0, 0 end
  if rest == 0 then return now + ahead, 0, 0 end
  return now + ahead + 1, limit - rest, 0
end

local function is_less(ahead, rest, other, other_rest)
  return ahead < other or ahead == other and rest < other_rest
end

local function add_step(b, limit, ahead, rest)
  ahead, rest = ahead + number(b, STEP), rest + number(b, STEP + 1)
  if rest < limit then return ahead, rest end
  return ahead + 1, rest - limit
end

local function charged_cell(b)
  local limit = number(b, LIMIT)
  local ahead, rest = add_step(b, limit, ahead_of(limit, b.expires, b.a))
  if is_less(number(b, TAU), number(b, TAU + 1), ahead, rest) then return nil end
  return cell_at(limit, ahead, rest)
end

-- The difference of two spans, at least 0.
local function subtract(limit, ahead, rest, less, less_rest)
  if is_less(ahead, rest, less, less_rest) then return 0, 0 end
  if rest >= less_rest then return ahead - less, rest - less_rest end
  return ahead - less - 1, rest + limit - less_rest
end

-- The cell under another limit: as many used units. The span to TAT in microseconds, times the limit,
-- is the units times the window, and so stays the same. It may be more than a double holds, but not
-- its parts here, except of very high limits: their rest is rounded up.
local function converted_rate(_, expires, added, from, to)
  local ahead = expires - now
  if to == 0 then return expires, added end
  local parts = ahead % to * from - added
  ahead, parts = floor(ahead / to) * from + floor(parts / to), parts % to
  if ahead >= LONGEST then return now + LONGEST, 0 end
  if from * to >= 2 * LONGEST then return now + ahead + 1, 0 end
  if parts == 0 then return now + ahead, 0 end
  return now + ahead + 1, to - parts
end

local function rate_kind(after, debt, less)
  local kind = cell_kind(7, after, debt, less)
  kind.rate, kind.convert = LIMIT, converted_rate
  return kind
end
