-- concurrency: a sorted set of leases, `id:units` by the instant of expiry. The member `units` has
-- their sum as its negated score, so that no call adds them up. The numbers are the limit, the time
-- to live of a lease, and the id of this one.

do
  local function lease_units(member) return tonumber(string.match(member, ':(%d+)$')) or 0 end

  -- The units of all leases. A set without a sum belongs to another program.
  local function total_of(b)
    local units = call(b, 'ZSCORE', b.key, 'units')
    if not units and call(b, 'ZRANGE', b.key, 0, 0)[1] then fail(b, 'what is there is not ours') end
    return -(tonumber(units or 0))
  end

  -- The units in use, and the expired leases that the sum still includes.
  local function in_use(b)
    local total = total_of(b)
    local expired, units = call(b, 'ZRANGEBYSCORE', b.key, '0', digits(now)), 0
    for _, member in ipairs(expired) do units = units + lease_units(member) end
    return math.max(0, total - units), expired
  end

  -- Writes the units in use, and removes these leases. The key lives as long as the last lease.
  local function write_leases(b, units, expired)
    for _, member in ipairs(expired) do redis.call('ZREM', b.key, member) end
    local last = redis.call('ZRANGE', b.key, -1, -1, 'WITHSCORES')
    if not last[2] or tonumber(last[2]) <= 0 then
      redis.call('DEL', b.key)
    else
      redis.call('ZADD', b.key, string.format('%.0f', -units), 'units')
      redis.call('PEXPIREAT', b.key, deadline(tonumber(last[2])))
    end
  end

  kinds.concurrency = {
    numbers = 3,
    read = function(b) b.units, b.expired = in_use(b) end,
    fits = function(b) return b.cost == 0 or b.units + b.cost <= number(b, 1) end,
    charge = function(b)
      redis.call('ZADD', b.key, digits(now + number(b, 2)), ARGV[b.at + 3] .. ':' .. digits(b.cost))
      write_leases(b, b.units + b.cost, b.expired)
    end,
    reply_state = function(b) return digits(b.units) end,
    total_of = total_of,
    write = write_leases,
  }
end
