-- leaky_bucket. Who is refused stands in no line, so that nobody owes; who leaves it takes all of his step back.
do
  local function moved_back(b)
    local limit = number(b, LIMIT)
    local ahead, rest = ahead_of(limit, b.expires, b.a)
    return arrival(limit, minus(limit, ahead, rest, number(b, STEP), number(b, STEP + 1)))
  end

  kinds.leaky_bucket = cell_kind(7, moved, nil, moved_back)
end
