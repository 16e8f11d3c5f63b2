-- fixed_window. The cell is the end of the window and the count. When a window ends that is opened now, `start` says:
--   grid   windows of `one` microseconds follow one another; one of them starts `two` after the epoch
--   first  `one` microseconds from now
--   span   at `two`, if it has begun at `one`: a period of a calendar. Where now is in another, `b.misfit` says so

function kinds.fixed_window()
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

  local kind = cell_kind({'start', 'limit', 'one', 'two'},
    function(b)
      local count, ends = counted(b)
      if count + b.cost > b.limit then return nil end
      return ends, count + b.cost, 0
    end,
    function(b)
      local count, ends = counted(b)
      -- What is owed once a cost is settled may be given back by others: all of it counts.
      local most = b.is_settled and 4294967295 or b.limit
      if count >= most then return nil end
      return ends, math.min(count + b.cost, most), 0
    end,
    function(b)
      if b.expires ~= b.then_expires then return b.expires, b.a, 0 end
      if b.a <= b.cost then return 0, 0, 0 end
      return b.expires, b.a - b.cost, 0
    end)

  function kind.read(b)
    cells.read(b)
    b.misfit = b.start == 'span' and b.expires <= now and (now < b.one or now >= b.two)
  end

  -- A window that counts more than its limit, as settled costs may make it, refuses also who asks for nothing.
  function kind.fits(b)
    b.next = {kind.after(b)}
    return b.next[1] ~= nil
  end

  return kind
end
