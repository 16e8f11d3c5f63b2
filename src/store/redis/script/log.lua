-- sliding_log: the instant at which the newest unit leaves, the number of units, the number of
-- removed units before them, and a tick of 4 bytes for each, the oldest first. Units are appended.
-- Units that have left are cut off once they outnumber the others. A lower limit keeps the units of
-- a higher one, of which the newest count. A unit counts for `span` ticks
-- of `tick` microseconds. The numbers are the limit, `tick` and `span`.

do
  local LOG_HEAD = '%016.0f %010.0f %010.0f '
  local LOG_HEAD_BYTES = 39

  -- The tick of a unit, counted from the oldest that is kept.
  local function tick_of(b, unit)
    local place = LOG_HEAD_BYTES + 4 * (b.removed + unit)
    local kept = word_at(redis.call('GETRANGE', b.key, place, place + 3), 1)
    return math.max(0, b.newest - (b.newest - kept) % 4294967296)
  end

  -- The number of units that have left. The search begins at the oldest, since mostly few have.
  local function count_left(b)
    local function has_left(unit) return tick_of(b, unit) + b.span <= b.present end
    local left, step = 0, 1
    while left + step <= b.units and has_left(left + step - 1) do left, step = left + step, step * 2 end
    while step >= 1 do
      if left + step <= b.units and has_left(left + step - 1) then left = left + step end
      step = floor(step / 2)
    end
    return left
  end

  -- Reads the head of a state.
  local function parse_head(b, state)
    b.expires, b.units, b.removed = 0, 0, 0
    if state ~= '' then
      local expires, units, removed = string.match(state, '^(%d+) (%d+) (%d+) ')
      if not expires or #expires + #units + #removed ~= 36 then fail(b, 'what is there cannot be read') end
      b.expires, b.units, b.removed = tonumber(expires), tonumber(units), tonumber(removed)
    end
    b.is_live = b.expires > now
    b.is_stale = state ~= '' and not b.is_live
    b.tick, b.span = number(b, 2), number(b, 3)
    b.present = floor(now / b.tick)
    b.newest = b.is_live and floor(b.expires / b.tick) - b.span or b.present
    b.present = math.max(b.present, b.newest)
  end

  local function live_units(b) return b.is_live and b.units - b.left or 0 end

  -- Appends units at the present tick after the newest `kept` ones.
  local function append(b, kept, units)
    local removed = b.is_live and b.removed + b.units - kept or 0
    local base = LOG_HEAD_BYTES
    local expires = (b.present + b.span) * b.tick
    local ticks = string.rep(word(b.present % 4294967296), units)
    if removed > kept or not b.is_live then
      local before = ''
      if kept > 0 then before = redis.call('GETRANGE', b.key, base + 4 * removed, base + 4 * (removed + kept) - 1) end
      removed = 0
      redis.call('SET', b.key, string.format(LOG_HEAD, expires, kept + units, removed) .. before .. ticks)
    else
      redis.call('SETRANGE', b.key, 0, string.format(LOG_HEAD, expires, kept + units, removed))
      redis.call('APPEND', b.key, ticks)
    end
    redis.call('PEXPIREAT', b.key, deadline(expires))
    b.is_live, b.newest, b.left = true, b.present, 0
    b.expires, b.units, b.removed = expires, kept + units, removed
  end

  kinds.sliding_log = {
    numbers = 3,
    read = function(b)
      parse_head(b, call(b, 'GETRANGE', b.key, 0, LOG_HEAD_BYTES - 1))
      b.left = b.is_live and count_left(b) or 0
    end,
    fits = function(b) return b.cost == 0 or live_units(b) + b.needed <= number(b, 1) end,
    charge = function(b) append(b, live_units(b), b.cost) end,
    -- Units of a higher limit stay, since they count for machines that have it.
    owe = function(b)
      local limit, live = number(b, 1), live_units(b)
      local units = math.min(b.cost, limit)
      if units > 0 and live <= limit then append(b, math.min(live, limit - units), units) end
    end,
    -- Removes units with the instant of a charge, as far as they still count.
    take_back = function(b)
      local function first_from(tick)
        local low, high = b.left, b.units
        while low < high do
          local middle = floor((low + high) / 2)
          if tick_of(b, middle) >= tick then high = middle else low = middle + 1 end
        end
        return low
      end
      local tick = floor(b.then_expires / b.tick) - b.span
      local first, past = first_from(tick), first_from(tick + 1)
      local back = math.min(b.cost, past - first)
      if back == 0 then return end
      local kept = b.units - b.left - back
      if kept == 0 then return redis.call('DEL', b.key) end
      local newest = b.newest
      if past == b.units then newest = tick_of(b, past - back - 1) end
      local base = LOG_HEAD_BYTES + 4 * b.removed
      local function ticks(from, to)
        if from == to then return '' end
        return redis.call('GETRANGE', b.key, base + 4 * from, base + 4 * to - 1)
      end
      local rest = ticks(b.left, past - back) .. ticks(past, b.units)
      local expires = (newest + b.span) * b.tick
      redis.call('SET', b.key, string.format(LOG_HEAD, expires, kept, 0) .. rest, 'PXAT', deadline(expires))
    end,
    -- The instant at which the newest unit leaves, the number of units, the tick of the first, and
    -- the tick and place of the last unit that has to leave before the charge fits. Where units have
    -- to stay, no more units count than may be taken, or one.
    reply_state = function(b)
      local kept = tonumber(ARGV[b.at - 2]) or 0
      local limit = math.max(math.min(1, number(b, 1)), number(b, 1) - kept)
      local units = math.min(live_units(b), limit)
      if units == 0 then return '' end
      local oldest = b.left + live_units(b) - units
      local last = math.max(0, math.min(units + b.cost - limit, units) - 1)
      local first = tick_of(b, oldest) % 4294967296
      local of_last = tick_of(b, oldest + last) % 4294967296
      return string.format('%.0f %.0f %.0f %.0f %.0f 0', b.expires, units, first, last, of_last)
    end,
  }
end
