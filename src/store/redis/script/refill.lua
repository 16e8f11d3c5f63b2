-- token_bucket with a refill in steps. The cell is the instant of the refill that makes the bucket whole, and what is
-- missing until then (1 to `amount`); each refill before it, `interval` apart, adds `amount`. `whole` is how long an empty
-- bucket takes.

function kinds.interval_refill()
  -- What is missing, and when the first of it comes back.
  local function missing_of(b, expires, last)
    local ahead = expires - now
    if ahead <= 0 then return 0, now + b.interval end
    local full = floor((ahead - 1) / b.interval)
    return full * b.amount + last, expires - full * b.interval
  end

  local function refilled(b, missing, next)
    if missing == 0 then return 0, 0, 0 end
    local refills = floor((missing - 1) / b.amount)
    return next + refills * b.interval, missing - refills * b.amount, 0
  end

  return cell_kind({'capacity', 'amount', 'interval', 'whole'},
    function(b)
      local missing, next = missing_of(b, b.expires, b.a)
      if missing + b.cost > b.capacity then return nil end
      return refilled(b, missing + b.cost, next)
    end,
    function(b)
      local missing, next = missing_of(b, b.expires, b.a)
      local most = (floor((now + b.whole - next) / b.interval) + 1) * b.amount
      if missing >= most then return nil end
      return refilled(b, math.min(missing + b.cost, most), next)
    end,
    function(b)
      local missing, next = missing_of(b, b.expires, b.a)
      -- Of the charge has certainly not come back what is still missing behind all others, or what so few refills have
      -- not brought.
      local behind = missing_of(b, b.then_expires, b.then_a) - b.others
      local alone = b.alone - (floor(math.max(0, now - b.at) / b.interval) + 1) * b.amount
      local back = math.max(0, math.min(b.cost, b.alone, math.max(behind, alone)))
      return refilled(b, math.max(0, missing - back), next)
    end)
end
