-- Cells: a state of an instant and two counters, as three numbers. Their kinds have
--   after(b)  the cell after a charge; nil if it does not fit
--   debt(b)   the cell with a refused request as a debt; nil if it stays
--   less(b)   the cell, which still counts, after units are given back

-- The longest window in microseconds. No converted cell takes longer to recover.
local LONGEST = 4503599627370496

-- If costs are settled, two numbers follow: the unsettled units, and the start of their count. The
-- start tells a bucket from its state before it was full.
local function set_cell(b, expires, one, two)
  b.expires, b.a, b.b = expires, one, two
  -- Also the reply: formatting a 16-digit number takes nearly as long as a call of Redis.
  b.state = digits(expires) .. ' ' .. digits(one) .. ' ' .. digits(two)
  if b.since then b.state = b.state .. ' ' .. digits(b.unsettled) .. ' ' .. digits(b.since) end
end

-- A cell under another rate than the reader's is converted; `b.rate` and the reply have that rate.
local function read_cell(b)
  local state, place, rate = call(b, 'GET', b.key), b.kind.rate, nil
  b.expires, b.a, b.b, b.state = 0, 0, 0, '0 0 0'
  if not state then return end
  if place then rate, state = string.match(state, '^([1-9]%d*)|(.*)$') end
  local expires, one, two, more = string.match(state or '', '^(%d+) (%d+) (%d+)(.*)$')
  if not expires then fail(b, 'what is there cannot be read') end
  b.expires, b.a, b.b, b.state = expires + 0.0, one + 0.0, two + 0.0, state
  if more ~= '' then
    local unsettled, since = string.match(more, '^ (%d+) (%d+)$')
    if not unsettled then fail(b, 'what is there cannot be read') end
    if b.expires > now then
      b.unsettled, b.since = unsettled + 0.0, since + 0.0
    else
      b.state = expires .. ' ' .. one .. ' ' .. two
    end
  end
  if place and rate ~= ARGV[b.at + place] and b.expires > now then
    b.rate = rate + 0.0
    expires, one = b.kind.convert(b, b.expires, b.a, b.rate, number(b, place))
    set_cell(b, expires, one, b.b)
    b.state = rate .. '|' .. b.state
  end
end

-- Writes a cell, under the writer's rate or a given one; a full bucket has no value.
local function write_cell(b, expires, one, two, rate)
  if expires == 0 then return redis.call('DEL', b.key) end
  set_cell(b, expires, one, two)
  rate = b.kind.rate and (rate or ARGV[b.at + b.kind.rate]) .. '|' or ''
  redis.call('SET', b.key, rate .. b.state, 'PXAT', deadline(expires))
end

local function fits_cell(b)
  if b.cost == 0 then return true end
  b.next, b.next_a, b.next_b = b.kind.after(b)
  return b.next ~= nil
end

local function charge_cell(b) write_cell(b, b.next, b.next_a, b.next_b) end

local function owe_cell(b)
  local expires, one, two = b.kind.debt(b)
  if expires then write_cell(b, expires, one, two) end
end

local function cell_kind(numbers, after, debt, less)
  return {
    numbers = numbers, read = read_cell, fits = fits_cell, charge = charge_cell, owe = debt and owe_cell,
    after = after, debt = debt, less = less,
  }
end
