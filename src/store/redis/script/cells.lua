-- Cells: a state of an instant and two counters, as three numbers. Their kinds have
--   after(b)  the cell after a charge; nil if it does not fit
--   debt(b)   the cell with a refused request as a debt; nil if it stays
--   less(b)   the cell, which still counts, after units are given back

-- If costs are settled, two numbers follow: the unsettled units, and the start of their count. The
-- start tells a bucket from its state before it was full.
local function read_cell(b)
  local state = state_of(b, call(b, 'GET', b.key))
  b.expires, b.a, b.b, b.state = 0, 0, 0, '0 0 0'
  if not state then return end
  local expires, one, two, more = string.match(state, '^(%d+) (%d+) (%d+)(.*)$')
  if not expires then fail(b, 'what is there cannot be read') end
  b.expires, b.a, b.b, b.state = expires + 0.0, one + 0.0, two + 0.0, state
  if more == '' then return end
  local unsettled, since = string.match(more, '^ (%d+) (%d+)$')
  if not unsettled then fail(b, 'what is there cannot be read') end
  if b.expires > now then
    b.unsettled, b.since = unsettled + 0.0, since + 0.0
  else
    b.state = expires .. ' ' .. one .. ' ' .. two
  end
end

-- A full bucket has no value.
local function write_cell(b, expires, one, two)
  if expires == 0 then return redis.call('DEL', b.key) end
  b.expires, b.a, b.b = expires, one, two
  -- Also the reply: formatting a 16-digit number takes nearly as long as a call of Redis.
  b.state = digits(expires) .. ' ' .. digits(one) .. ' ' .. digits(two)
  if b.since then b.state = b.state .. ' ' .. digits(b.unsettled) .. ' ' .. digits(b.since) end
  redis.call('SET', b.key, b.recipe .. b.state, 'PXAT', deadline(expires))
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
