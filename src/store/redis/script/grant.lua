-- Units that an operator has granted to a key. The cell is the end of the grant, the units that are
-- left, and the granted ones. There are no numbers.
do
  local function after(b)
    if b.expires <= now or b.a < b.cost then return nil end
    return b.expires, b.a - b.cost, b.b
  end

  -- A settled cost takes what is left.
  local function debt(b)
    if b.expires <= now then return nil end
    return b.expires, math.max(0, b.a - b.cost), b.b
  end

  -- Only the same grant gets units back.
  local function less(b)
    if b.expires ~= b.then_expires or b.b ~= b.then_b then return b.expires, b.a, b.b end
    return b.expires, math.min(b.a + b.cost, b.b), b.b
  end

  kinds.grant = cell_kind(0, after, debt, less)
  kinds.grant.is_grant = true
end
