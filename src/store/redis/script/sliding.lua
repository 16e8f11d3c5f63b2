-- sliding_window of one part. The cell was last charged in the part that starts `lasting` parts before its instant; the
-- counters are that of the part before it, and its own. `oldest` says how the older counts.

-- Whether `cost` more fit, beside counters of the oldest part and of the others.
local function has_room(b, oldest, others, elapsed)
  local room = b.limit - others - b.cost
  if room < 0 then return false end
  if b.oldest == 'ignored' then return true end
  if b.oldest == 'whole' then return oldest <= room end
  return is_at_most(oldest, b.part - elapsed, room, b.part)
end

function kinds.sliding_window()
  -- The start of the part that it is (that of the last charge if that is later), the microseconds since, and the counters
  -- of the part before it and its own.
  local function parts_of(b)
    if b.expires <= now then return now - now % b.part, now % b.part, 0, 0 end
    local charged = b.expires - b.lasting * b.part
    local at = math.max(now, charged)
    local start = at - at % b.part
    if start == charged then return start, at - start, b.a, b.b end
    return start, at - start, b.b, 0
  end

  return cell_kind({'limit', 'part', 'lasting', 'oldest'},
    function(b)
      local start, elapsed, oldest, current = parts_of(b)
      if not has_room(b, oldest, current, elapsed) then return nil end
      return start + b.lasting * b.part, oldest, current + b.cost
    end,
    function(b)
      local start, _, oldest, current = parts_of(b)
      local most = math.max(current, b.limit)
      return start + b.lasting * b.part, oldest, math.min(current + b.cost, most)
    end,
    function(b)
      local start, _, oldest, current = parts_of(b)
      local charged = b.then_expires - b.lasting * b.part
      if charged == start then current = math.max(0, current - b.cost) end
      if charged + b.part == start then oldest = math.max(0, oldest - b.cost) end
      if current > 0 then return start + b.lasting * b.part, oldest, current end
      if oldest == 0 then return 0, 0, 0 end
      return start + (b.lasting - 1) * b.part, 0, oldest
    end)
end
