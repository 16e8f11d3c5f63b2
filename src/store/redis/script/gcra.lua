-- gcra, token_bucket and leaky_bucket. The cell is the theoretical arrival time, rounded up to a microsecond, and what
-- the rounding added, over `limit`. Spans are whole microseconds and a rest over `limit`:
--   tau    how far ahead TAT may lie
--   step   how far a charge moves it
--   most   how far ahead it may lie in debt

local function rates(is_line)
  -- How far TAT lies ahead.
  local function ahead_of(b, expires, added)
    local ahead = expires - now
    if ahead <= 0 then return 0, 0 end
    if added == 0 then return ahead, 0 end
    return ahead - 1, b.limit - added
  end

  local function backlog(b) return ahead_of(b, b.expires, b.a) end

  -- The cell whose TAT lies so far ahead.
  local function arrival(b, ahead, rest)
    if ahead == 0 and rest == 0 then return 0, 0, 0 end
    if rest == 0 then return now + ahead, 0, 0 end
    return now + ahead + 1, b.limit - rest, 0
  end

  local function plus(b, ahead, rest, more, more_rest)
    local sum = rest + more_rest
    if sum < b.limit then return ahead + more, sum end
    return ahead + more + 1, sum - b.limit
  end

  local function is_less(ahead, rest, other, other_rest)
    return ahead < other or ahead == other and rest < other_rest
  end

  local function moved(b)
    local ahead, rest = backlog(b)
    ahead, rest = plus(b, ahead, rest, b.step, b.step_rest)
    if is_less(b.tau, b.tau_rest, ahead, rest) then return nil end
    return arrival(b, ahead, rest)
  end

  local function moved_into_debt(b)
    local ahead, rest = backlog(b)
    if not is_less(ahead, rest, b.most, b.most_rest) then return nil end
    ahead, rest = plus(b, ahead, rest, b.step, b.step_rest)
    if is_less(b.most, b.most_rest, ahead, rest) then ahead, rest = b.most, b.most_rest end
    return arrival(b, ahead, rest)
  end

  -- A step back: for who leaves a line, all of it; else not more than certainly has not come back with time of the charge,
  -- that alone, and behind all that was charged before it and settled since.
  local function moved_back(b)
    -- A span without another: none where that is longer.
    local function minus(ahead, rest, less, less_rest)
      if is_less(ahead, rest, less, less_rest) then return 0, 0 end
      if rest >= less_rest then return ahead - less, rest - less_rest end
      return ahead - less - 1, rest + b.limit - less_rest
    end

    local back, back_rest = b.step, b.step_rest
    if not is_line then
      local alone, alone_rest = minus(b.alone, b.alone_rest, math.max(0, now - b.at), 0)
      local behind, behind_rest = ahead_of(b, b.then_expires, b.then_a)
      behind, behind_rest = minus(behind, behind_rest, b.others, b.others_rest)
      if is_less(alone, alone_rest, behind, behind_rest) then alone, alone_rest = behind, behind_rest end
      if is_less(alone, alone_rest, back, back_rest) then back, back_rest = alone, alone_rest end
    end
    local ahead, rest = backlog(b)
    return arrival(b, minus(ahead, rest, back, back_rest))
  end

  local spans = {'limit', 'tau', 'tau_rest', 'step', 'step_rest', 'most', 'most_rest'}
  -- Who is refused stands in no line.
  return cell_kind(spans, moved, not is_line and moved_into_debt, moved_back)
end

function kinds.gcra() return rates(false) end
function kinds.leaky_bucket() return rates(true) end
