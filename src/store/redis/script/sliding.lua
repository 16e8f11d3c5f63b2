-- sliding_window of one part. The last charge was in the part that starts `lasting` parts before
-- the cell's instant; the counters are those of the part before it, and its own.
do
  local LIMIT, PART, LASTING = 1, 2, 3

  local function lasting(b) return number(b, LASTING) * number(b, PART) end

  -- The start of the current part (that of the last charge if it is later), the microseconds since,
  -- and the counters of the part before it and its own.
  local function parts_of(b)
    local part = number(b, PART)
    if b.expires <= now then return now - now % part, now % part, 0, 0 end
    local charged = b.expires - lasting(b)
    local at = math.max(now, charged)
    local start = at - at % part
    if start == charged then return start, at - start, b.a, b.b end
    return start, at - start, b.b, 0
  end

  local function after(b)
    local start, elapsed, oldest, current = parts_of(b)
    if not has_room(b, oldest, current, elapsed) then return nil end
    return start + lasting(b), oldest, current + b.cost
  end

  local function debt(b)
    local start, _, oldest, current = parts_of(b)
    local most = math.max(current, number(b, LIMIT))
    -- Machines with a higher limit count beyond this one: then all of a settled cost counts.
    if b.is_settled and current > number(b, LIMIT) then most = 4294967295 end
    return start + lasting(b), oldest, math.min(current + b.cost, most)
  end

  local function less(b)
    local start, _, oldest, current = parts_of(b)
    local part = number(b, PART)
    local charged = b.then_expires - lasting(b)
    if charged == start then current = math.max(0, current - b.cost) end
    if charged + part == start then oldest = math.max(0, oldest - b.cost) end
    if current > 0 then return start + lasting(b), oldest, current end
    if oldest == 0 then return 0, 0, 0 end
    return start + lasting(b) - part, 0, oldest
  end

  kinds.sliding_window = cell_kind(4, after, debt, less)
end
