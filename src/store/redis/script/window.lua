-- fixed_window. The cell is the end of the window and the count. The numbers are `start`, the limit, and two more; when a window
-- ends that is opened now, `start` says:
--   grid   windows of `one` microseconds follow one another; one of them starts `two` after the epoch
--   first  `one` microseconds from now
--   span   at `two`, if it has begun at `one`: a period of a calendar. Where now is in another, `b.misfit` says so
do
  local START, LIMIT, ONE, TWO = 1, 2, 3, 4

  local function window_end(b)
    local start, one = ARGV[b.at + START], number(b, ONE)
    if start == 'first' then return now + one end
    local two = number(b, TWO)
    if start == 'grid' then return now + one - (now % one + one - two) % one end
    return two
  end

  -- The count, and the end of its window.
  local function counted(b)
    if b.expires > now then return b.a, b.expires end
    return 0, window_end(b)
  end

  local function after(b)
    local count, ends = counted(b)
    if count + b.cost > number(b, LIMIT) then return nil end
    return ends, count + b.cost, 0
  end

  local function debt(b)
    local count, ends = counted(b)
    -- What is owed once a cost is settled may be given back by others: all of it counts.
    local most = b.is_settled and 4294967295 or number(b, LIMIT)
    if count >= most then return nil end
    return ends, math.min(count + b.cost, most), 0
  end

  local function less(b)
    if b.expires ~= b.then_expires then return b.expires, b.a, 0 end
    if b.a <= b.cost then return 0, 0, 0 end
    return b.expires, b.a - b.cost, 0
  end

  local kind = cell_kind(4, after, debt, less)

  function kind.read(b)
    read_cell(b)
    if ARGV[b.at + START] ~= 'span' or b.expires > now then return end
    b.misfit = now < number(b, ONE) or now >= number(b, TWO)
  end

  -- A window that counts more than its limit, as settled costs may make it, refuses also who asks for nothing.
  function kind.fits(b)
    b.next, b.next_a, b.next_b = after(b)
    return b.next ~= nil
  end

  kinds.fixed_window = kind
end
