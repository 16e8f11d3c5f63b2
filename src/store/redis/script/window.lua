-- fixed_window. The cell is the end of the window and the count. When a window ends that is opened now, `start` says:
--   grid   windows of `one` microseconds follow one another; one of them starts `two` after the epoch
--   first  `one` microseconds from now
--   span   at `two`, if it has begun at `one`: a period of a calendar. Where now is in another, `b.misfit` says so

local function window_end(b)
  if b.start == 'first' then return now + b.one end
  if b.start == 'grid' then return now + b.one - (now % b.one + b.one - b.two) % b.one end
  return b.two
end

-- The count, and the end of its window.
local function counted(b)
  if b.expires > now then return b.a, b.expires end
  return 0, window_end(b)
end

local function count_up_to(b, most)
  local count, ends = counted(b)
  if count >= most then return nil end
  return ends, math.min(count + b.cost, most), 0
end

kinds.fixed_window = cell_kind({'start', 'limit', 'one', 'two'},
  function(b)
    local count, ends = counted(b)
    if count + b.cost > b.limit then return nil end
    return ends, count + b.cost, 0
  end,
  function(b) return count_up_to(b, b.limit) end)

function kinds.fixed_window.read(b)
  cells.read(b)
  b.misfit = b.start == 'span' and b.expires <= now and (now < b.one or now >= b.two)
end
