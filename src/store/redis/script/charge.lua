-- Charges: decides a request by all its limits at one instant, and charges all of them or none.
--
-- KEYS  a key for each bucket. The buckets of a charge follow one another: an overflow bucket pays
--       what those before it cannot pay.
-- ARGV  the instant, in microseconds since the epoch, or '' for the server's time;
--       the number of enforced charges, which come first: the others are in shadow; or `refused`:
--       the request is refused elsewhere; or `peek`: nothing is charged;
--       then for each bucket
--         the kind of algorithm;
--         `first` for the first bucket of its charge, `further` for an overflow bucket;
--         the cost; `never` if even a full bucket holds less, else the units that have to stay;
--         `settles` if the cost of an admitted request is settled later, `asks` if the bucket needs
--         its units and an admitted request is charged nothing, else `stays`;
--         `owe` if each refusal is charged, `owe_own` if only its own is, of a request that all
--         enforced charges admit; else `free`;
--         the numbers of the algorithm, which its file lists;
--       in a cluster then the id of a request that other slots may still refuse, or '', and for how
--       long they may, in microseconds.
-- Reply a line of words: `told`, the instant, and for each bucket
--         `charged`; `counted` if a refused request that `asks` was charged;
--         `spared` if it would have been charged, but another bucket refuses;
--         `refused`; `doubted` if it is refused while charges of other requests, which other slots
--         may refuse, can still be given back; `owed`; `unasked`;
--       then for each bucket its state before the charge, or with the debt, or '' if it was not
--       asked, except for granted units; a state that was converted follows the rate of the value and
--       `|`; or `again` and the instant: then nothing was charged, since a
--       calendar period of the caller does not contain the instant.

-- All buckets, and the deciding bucket of each charge.
local all, deciding = {}, {}
local is_other_period = false
-- The place before the arguments of a cluster.
local buckets_end

-- Reads the buckets, one after the other.
local function decide()
  local at, charges = 2, 0
  for i = 1, #KEYS do
    -- All fields from the start, and at most 16: a table that grows is slow.
    local cost, kept = ARGV[at + 3] + 0.0, ARGV[at + 4]
    local b = {
      key = KEYS[i], kind = kinds[ARGV[at + 1]], cost = cost, at = at + 6, fits = false,
      needed = (cost == 0 or kept == '0' or kept == 'never') and cost or cost + kept,
      outcome = 'unasked', reply = '', state = '', expires = 0, a = 0, b = 0, next = 0, next_a = 0, next_b = 0,
    }
    local is_first, is_grant = ARGV[at + 2] == 'first', b.kind.is_grant
    if is_first then charges = charges + 1 end
    local is_asked = is_first or not deciding[charges].fits
    if is_asked then
      b.kind.read(b)
      b.fits = kept ~= 'never' and b.kind.fits(b)
      b.outcome = 'refused'
      -- Granted units that do not suffice leave the refusal, and its debt, to the quota.
      if b.fits or not is_grant then deciding[charges] = b end
      is_other_period = is_other_period or b.misfit
    elseif is_grant then
      b.kind.read(b)
    end
    all[i] = b
    at = b.at + b.kind.numbers
  end
  buckets_end = at
end

local is_decided, failure = pcall(decide)
if not is_decided then return type(failure) == 'table' and failure or redis.error_reply(failure) end
if is_other_period then return {'again ' .. digits(now)} end

-- Sets the replied states, and deletes expired values.
for i = 1, #all do
  local b = all[i]
  if b.outcome ~= 'unasked' or b.kind.is_grant then
    b.reply = b.kind.reply_state and b.kind.reply_state(b) or b.state
    if b.is_stale then redis.call('DEL', b.key) end
  end
end

local is_peek = ARGV[2] == 'peek'
local is_admitted = not is_peek and ARGV[2] ~= 'refused'
for place = 1, is_admitted and math.min(ARGV[2] + 0, #deciding) or 0 do
  is_admitted = is_admitted and deciding[place].fits
end
for i = 1, #deciding do
  local b = deciding[i]
  local kind, settles, debt = b.kind, ARGV[b.at - 1], ARGV[b.at]
  if settles == 'asks' and b.fits and is_admitted then b.cost = 0 end
  local owes = b.cost > 0 and not is_peek and (debt == 'owe' or debt == 'owe_own' and is_admitted)
  if b.fits and (is_admitted or owes) then
    b.outcome = 'charged'
    if settles == 'settles' and is_admitted and b.cost > 0 then
      if not b.since then b.unsettled, b.since = 0, now end
      b.unsettled = b.unsettled + b.cost
    end
    if b.cost > 0 then kind.charge(b) end
    if settles == 'asks' and b.cost > 0 then b.outcome = 'counted' end
  elseif b.fits then
    b.outcome = 'spared'
  elseif owes and kind.owe then
    b.outcome = 'owed'
    kind.owe(b)
    b.reply = kind.reply_state and kind.reply_state(b) or b.state
  end
end

-- While other slots may refuse a request, its charges here are under its id.
local id = ARGV[buckets_end + 1]
for i = 1, id and #all or 0 do
  local b = all[i]
  local is_made = b.outcome == 'charged' and b.cost > 0 and id ~= ''
  if is_made or b.outcome == 'refused' then
    local key = b.key .. ':undecided'
    local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
    local ends = (last[2] or 0) + 0.0
    if is_made then
      local mine = now + ARGV[buckets_end + 2]
      for _, over in ipairs(redis.call('ZRANGEBYSCORE', key, '0', digits(now))) do redis.call('ZREM', key, over) end
      redis.call('ZADD', key, digits(mine), id)
      redis.call('PEXPIREAT', key, deadline(math.max(ends, mine)))
    elseif ends > now then
      b.outcome = 'doubted'
    end
  end
end

local reply = {'told ' .. digits(now)}
for i = 1, #all do
  reply[1] = reply[1] .. ' ' .. all[i].outcome
  reply[i + 1] = all[i].reply
end
return reply
