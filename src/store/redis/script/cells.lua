-- Cells: a state of an instant and two counters, as three numbers. Kinds of them have
--   after(b)  the cell after a charge; nil where it does not fit
--   debt(b)   the cell with a refused request as a debt; nil where it stays
--   less(b)   the cell, which still counts, after something is given back

-- Where costs are settled two numbers follow: how many units are still to be settled, and since when they are counted, which
-- tells a bucket from what it was before it was whole.
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

-- Of a bucket that is whole there is none.
local function write_cell(b, expires, one, two)
  if expires == 0 then return redis.call('DEL', b.key) end
  b.expires, b.a, b.b = expires, one, two
  -- As it is told, too: to write a number of 16 digits takes nearly as long as a call of Redis.
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
