-- gcra and token_bucket.
do
  local function debt_cell(b)
    local limit, most, most_rest = number(b, LIMIT), number(b, MOST), number(b, MOST + 1)
    local ahead, rest = ahead_of(limit, b.expires, b.a)
    if not is_less(ahead, rest, most, most_rest) then return nil end
    ahead, rest = add_step(b, limit, ahead, rest)
    if is_less(most, most_rest, ahead, rest) then ahead, rest = most, most_rest end
    return cell_at(limit, ahead, rest)
  end

  -- A step back, but at most as much as time has certainly not refilled: the rest of the charge
  -- alone, or the rest of all charges up to it without those unsettled at its instant, whichever is
  -- more. Under another machine's higher limit, more units return in that time.
  local function reduced_cell(b)
    local limit, back, back_rest = number(b, LIMIT), number(b, STEP), number(b, STEP + 1)
    local since, more = math.max(0, now - b.at_charge), 0
    if b.rate and b.rate > limit then more = floor(since * (b.rate / limit - 1)) + 1 end
    local alone, alone_rest = subtract(limit, b.alone, b.alone_rest, since + more, 0)
    local behind, behind_rest = ahead_of(limit, b.then_expires, b.then_a)
    behind, behind_rest = subtract(limit, behind, behind_rest, b.others, b.others_rest)
    behind, behind_rest = subtract(limit, behind, behind_rest, more, 0)
    if is_less(alone, alone_rest, behind, behind_rest) then alone, alone_rest = behind, behind_rest end
    if is_less(alone, alone_rest, back, back_rest) then back, back_rest = alone, alone_rest end
    local ahead, rest = ahead_of(limit, b.expires, b.a)
    return cell_at(limit, subtract(limit, ahead, rest, back, back_rest))
  end

  kinds.gcra = rate_kind(charged_cell, debt_cell, reduced_cell)
end
