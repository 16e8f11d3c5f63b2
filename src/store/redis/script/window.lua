-- fixed_window. The cell is an instant, the count, and the seconds from the end of the window to
-- that instant. The numbers are `start`, the limit, two more, and the nominal window. `start` says
-- when a window ends that opens now:
--   grid   windows of `one` microseconds follow one another; one of them starts `two` after the
--          epoch
--   first  `one` microseconds from now
--   span   at `two`, if it has begun at `one`: a calendar period. In another period `b.misfit` is
--          true
--   local  as span, but not before a period after the first charge of the last window. The cell
--          outlives its window until a nominal window after its first charge, rounded up to a
--          second
do
  local START, LIMIT, ONE, TWO, NOMINAL = 1, 2, 3, 4, 5
  local SECOND = 1000000

  local function end_of(expires, seconds) return expires - seconds * SECOND end

  -- The cell of a window that opens now.
  local function opened(b)
    local start, one = ARGV[b.at + START], number(b, ONE)
    if start == 'first' then return now + one, 0 end
    local two = number(b, TWO)
    if start == 'grid' then return now + one - (now % one + one - two) % one, 0 end
    if start == 'span' then return two, 0 end
    local nominal, ends = number(b, NOMINAL), two
    if b.expires > now then ends = math.max(two, b.expires - nominal + two - one) end
    local expires = math.max(ends, floor((now + nominal + SECOND - 1) / SECOND) * SECOND)
    return expires, floor((expires - ends) / SECOND)
  end

  -- The count, and the instant and seconds of its window.
  local function counted(b)
    if end_of(b.expires, b.b) > now then return b.a, b.expires, b.b end
    return 0, opened(b)
  end

  local function after(b)
    local count, expires, seconds = counted(b)
    if count + b.needed > number(b, LIMIT) then return nil end
    return expires, count + b.cost, seconds
  end

  local function debt(b)
    local count, expires, seconds = counted(b)
    -- A settled cost may later be given back: all of it counts.
    local most = b.is_settled and 549755813887 or number(b, LIMIT)
    if count >= most then return nil end
    return expires, math.min(count + b.cost, most), seconds
  end

  local function less(b)
    if end_of(b.expires, b.b) ~= end_of(b.then_expires, b.then_b) then return b.expires, b.a, b.b end
    -- A window that outlives its period keeps the next one from an early start.
    if b.a <= b.cost and b.b == 0 and ARGV[b.at + START] ~= 'local' then return 0, 0, 0 end
    return b.expires, math.max(0, b.a - b.cost), b.b
  end

  local kind = cell_kind(5, after, debt, less)

  function kind.read(b)
    read_cell(b)
    local start = ARGV[b.at + START]
    if start ~= 'span' and start ~= 'local' or end_of(b.expires, b.b) > now then return end
    b.misfit = now < number(b, ONE) or now >= number(b, TWO)
  end

  -- Settled costs may bring a window above its limit: it then refuses even a cost of 0.
  function kind.fits(b)
    b.next, b.next_a, b.next_b = after(b)
    return b.next ~= nil
  end

  kinds.fixed_window = kind
end
