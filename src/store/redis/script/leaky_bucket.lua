-- leaky_bucket. A refused request is not in the queue, so there is no debt. A request that leaves
-- the queue gives its whole step back.
do
  local function reduced_cell(b)
    local limit = number(b, LIMIT)
    local ahead, rest = ahead_of(limit, b.expires, b.a)
    return cell_at(limit, subtract(limit, ahead, rest, number(b, STEP), number(b, STEP + 1)))
  end

  kinds.leaky_bucket = rate_kind(charged_cell, nil, reduced_cell)
end
