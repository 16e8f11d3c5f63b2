-- sliding_window of many parts: a cell, then a counter of 4 bytes for each of parts + 1 slots. The
-- cell's second number is the sum of the newest `parts` counters at the last charge. A part's slot
-- is its number modulo parts + 1. The numbers are those of a sliding window, and `parts`.

do
  local HEAD = '%016.0f %010.0f '
  local HEAD_BYTES = 28

  -- The counter of a part: 0 before the epoch, after the last charge, and more than a window before
  -- it.
  local function count(b, part)
    if part < 0 or part > b.last or part + b.parts < b.last then return 0 end
    return word_at(b.state, HEAD_BYTES + 4 * (part % (b.parts + 1)) + 1)
  end

  local function sum_of_newest(b)
    if b.present - b.last >= b.parts then return 0 end
    local others = b.sum
    for part = b.last + 1, b.present do others = math.max(0, others - count(b, part - b.parts)) end
    return others
  end

  -- Reads a state, as of now.
  local function parse_state(b, state)
    b.state, b.expires, b.sum = state or '', 0, 0
    if state then
      local expires, sum = string.match(state, '^(%d+) (%d+) ')
      if not expires or #expires ~= 16 or #sum ~= 10 then fail(b, 'what is there cannot be read') end
      b.expires, b.sum = tonumber(expires), tonumber(sum)
    end
    b.part, b.lasting, b.parts = number(b, 2), number(b, 3), number(b, 5)
    local present = floor(now / b.part)
    b.is_live = b.expires > now
    b.is_stale = state and not b.is_live
    b.last = b.is_live and floor(b.expires / b.part) - b.lasting or present
    b.present = math.max(present, b.last)
    b.elapsed = math.max(0, now - b.present * b.part)
    b.older = b.is_live and count(b, b.present - b.parts) or 0
    b.others = b.is_live and sum_of_newest(b) or 0
  end

  -- Sets consecutive slots to zero; they may wrap around the end.
  local function clear(b, first, slots)
    local base, all = HEAD_BYTES, b.parts + 1
    local at_end = math.min(slots, all - first)
    redis.call('SETRANGE', b.key, base + 4 * first, string.rep('\0', 4 * at_end))
    if slots > at_end then redis.call('SETRANGE', b.key, base, string.rep('\0', 4 * (slots - at_end))) end
  end

  local function add(b, units)
    local slots = b.parts + 1
    local slot = b.present % slots
    local own = b.is_live and count(b, b.present) or 0
    local expires = (b.present + b.lasting) * b.part
    -- The debts of many parts may exceed a counter. It saturates, as in Rust.
    local head = string.format(HEAD, expires, math.min(b.others + units, 4294967295))
    if not b.is_live then
      redis.call('SET', b.key, head)
    else
      redis.call('SETRANGE', b.key, 0, head)
      local first = math.max(b.last + 1, b.present - b.parts)
      if first <= b.present then clear(b, first % slots, b.present - first + 1) end
    end
    redis.call('SETRANGE', b.key, HEAD_BYTES + 4 * slot, word(own + units))
    redis.call('PEXPIREAT', b.key, deadline(expires))
  end

  kinds.sliding_counters = {
    numbers = 5,
    read = function(b) parse_state(b, call(b, 'GET', b.key)) end,
    fits = function(b) return b.cost == 0 or has_room(b, b.older, b.others, b.elapsed) end,
    charge = function(b) add(b, b.cost) end,
    owe = function(b)
      local units = math.min(b.cost, number(b, 1) - (b.is_live and count(b, b.present) or 0))
      if units <= 0 then return end
      add(b, units)
      parse_state(b, redis.call('GET', b.key))
    end,
    -- Subtracts units from the part of a charge, while that part counts.
    take_back = function(b)
      local part = floor(b.then_expires / b.part) - b.lasting
      local back = part + b.parts >= b.present and math.min(b.cost, count(b, part)) or 0
      if back == 0 then return end
      local function remaining_in(one) return count(b, one) - (one == part and back or 0) end
      local newest = b.last
      local oldest = math.max(0, newest - b.parts)
      while newest >= oldest and remaining_in(newest) == 0 do newest = newest - 1 end
      if newest < oldest then return redis.call('DEL', b.key) end
      local sum = 0
      for one = newest, newest - b.parts + 1, -1 do sum = sum + remaining_in(one) end
      local expires = (newest + b.lasting) * b.part
      redis.call('SETRANGE', b.key, 0, string.format(HEAD, expires, math.min(sum, 4294967295)))
      redis.call('SETRANGE', b.key, HEAD_BYTES + 4 * (part % (b.parts + 1)), word(remaining_in(part)))
      redis.call('PEXPIREAT', b.key, deadline(expires))
    end,
    reply_state = function(b) return b.is_live and b.state or '' end,
  }
end
