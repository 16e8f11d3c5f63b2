-- token_bucket with a refill in steps. The cell is the instant of the refill that fills the bucket,
-- the units missing until then (1 to `amount`), and 0; each refill before it, `interval` apart, adds
-- `amount`. The numbers are its capacity, `amount`, `interval`, and `most`: the longest time that it
-- takes to fill in debt.
do
  local CAPACITY, AMOUNT, INTERVAL, MOST = 1, 2, 3, 4

  -- The missing units, and the instant of the next refill.
  local function missing_of(b, expires, last, amount)
    local ahead, interval = expires - now, number(b, INTERVAL)
    if ahead <= 0 then return 0, now + interval end
    local full = floor((ahead - 1) / interval)
    return full * (amount or number(b, AMOUNT)) + last, expires - full * interval
  end

  local function refilled(b, missing, next, amount)
    if missing == 0 then return 0, 0, 0 end
    amount = amount or number(b, AMOUNT)
    local refills = floor((missing - 1) / amount)
    return next + refills * number(b, INTERVAL), missing - refills * amount, 0
  end

  -- As many units are missing, and the next refill comes when it would have.
  local function converted(b, expires, last, from, to)
    local missing, next = missing_of(b, expires, last, from)
    missing = math.min(missing, floor(LONGEST / number(b, INTERVAL)) * to)
    return refilled(b, missing, next, to)
  end

  local function after(b)
    local missing, next = missing_of(b, b.expires, b.a)
    if missing + b.cost > number(b, CAPACITY) then return nil end
    return refilled(b, missing + b.cost, next)
  end

  local function debt(b)
    local missing, next = missing_of(b, b.expires, b.a)
    local most = (floor((now + number(b, MOST) - next) / number(b, INTERVAL)) + 1) * number(b, AMOUNT)
    if missing >= most then return nil end
    return refilled(b, math.min(missing + b.cost, most), next)
  end

  local function less(b)
    local missing, next = missing_of(b, b.expires, b.a)
    -- Units certainly not refilled: those still missing of all charges up to this one without the
    -- unsettled ones, or those of this charge that the refills since could not bring. While any
    -- unit is missing, refills keep their instants. Those of another machine may be larger.
    local interval = number(b, INTERVAL)
    local first = b.then_expires - floor(math.max(0, b.then_expires - b.at_charge - 1) / interval) * interval
    local refills = math.max(0, floor((now - first) / interval) + 1)
    local amount = number(b, AMOUNT)
    local more = refills * math.max(0, (b.rate or amount) - amount)
    local behind = missing_of(b, b.then_expires, b.then_a) - b.others - more
    local alone = b.alone - refills * amount - more
    local back = math.max(0, math.min(b.cost, b.alone, math.max(behind, alone)))
    return refilled(b, math.max(0, missing - back), next)
  end

  kinds.interval_refill = cell_kind(4, after, debt, less)
  kinds.interval_refill.rate, kinds.interval_refill.convert = AMOUNT, converted
end
