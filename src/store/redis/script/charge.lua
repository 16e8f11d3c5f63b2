-- Charges: decides a request by all of its limits at one instant, and charges all of them or none.
--
-- KEYS  a key for each bucket. The buckets of a charge follow one another: a further one is for what those before it
--       cannot pay.
-- ARGV  the instant, in microseconds since the epoch, or '' for the server's time;
--       how many of the charges, the first ones, may refuse the request: the others watch;
--       then for each bucket
--         the kind of algorithm;
--         `first` of its charge, or a `further` one;
--         the cost; `never` instead of `may` where no bucket ever holds as much;
--         `settles` where it is settled later what an admitted request costs, else `stays`;
--         `owe` where a refusal is charged, `owe_own` where only its own is, of a request that is admitted; else `free`;
--         the recipe, up to and with its `|`;
--         the digest of the value under another recipe that the caller knows of, and what it is under this one, or ''s;
--         the numbers of the algorithm, as its file says.
-- Reply 'told', the instant, and for each bucket
--         `charged`, and the state before;
--         `spared` where it would have been charged, but another refuses: the state;
--         `refused`, and the state; `owed`, and the state with the debt; `unasked`;
--       or 'again', the instant, and for each bucket under another recipe its place, the digest of its value and the value:
--       then nothing was charged. There may be none: a window does not reach to that instant, or not from it.

local argument_place = 2
local function argument()
  argument_place = argument_place + 1
  return ARGV[argument_place]
end

local function bucket_of(key)
  local kind, tier, cost, hope = argument(), argument(), argument(), argument()
  local settles, debt = argument(), argument()
  -- With its other fields from the start: a table that grows is slow.
  local b = {
    key = key, rules = kind_of(kind), tier = tier, cost = tonumber(cost), hope = hope, settles = settles, debt = debt,
    recipe = argument(), digest = argument(), instead = argument(),
    fits = false, outcome = '', told = '', next = '', expires = 0, a = 0, b = 0, unsettled = 0, since = 0, is_converted = false,
  }
  for _, name in ipairs(b.rules.parameters) do
    local value = argument()
    local number = name ~= 'lease' and tonumber(value)
    -- A double also where Lua has integers, which would go round at 2^63.
    b[name] = number and number + 0.0 or value
  end
  return b
end

-- The buckets that decide, one for each charge, and all.
local function decide()
  local deciding, all = {}, {}
  local before
  for i, key in ipairs(KEYS) do
    local b = bucket_of(key)
    local is_asked = b.tier == 'first' or not before.fits
    if is_asked then
      b.rules.read(b)
      b.fits = b.hope == 'may' and b.rules.fits(b)
      if b.tier == 'first' then deciding[#deciding + 1] = b else deciding[#deciding] = b end
      before = b
    end
    b.outcome = is_asked and 'refused' or 'unasked'
    all[i] = b
  end
  return {deciding = deciding, all = all}
end

-- What the caller has to know to ask again, if it has to.
local function again(all)
  local reply, is_needed = {'again', digits(now)}, false
  for i, b in ipairs(all) do
    if b.other then
      reply[#reply + 1] = digits(i - 1)
      reply[#reply + 1] = b.digest_of_other
      reply[#reply + 1] = b.other
      is_needed = is_needed or not b.is_converted
    end
    is_needed = is_needed or b.misfit
  end
  return is_needed and reply
end

-- Notes what is told of a bucket that was asked, and puts it right where it is under another recipe, or has expired.
local function note(b)
  b.told = b.rules.told(b)
  if b.is_converted then convert(b) end
  if b.is_stale then redis.call('DEL', b.key) end
end

-- Charges a bucket, or not.
local function settle(b, is_admitted)
  local kind = b.rules
  local owes = b.cost > 0 and (b.debt == 'owe' or b.debt == 'owe_own' and is_admitted)
  if b.fits and (is_admitted or owes) then
    b.outcome = 'charged'
    if b.settles == 'settles' and is_admitted and b.cost > 0 then reserve(b) end
    if b.cost > 0 then kind.charge(b) end
  elseif b.fits then
    b.outcome = 'spared'
  elseif owes and kind.owe then
    b.outcome = 'owed'
    kind.owe(b)
    b.told = kind.told(b)
  end
end

set_time(ARGV[1])
local decided, failure = attempt(decide)
if failure then return failure end
local ask_again = again(decided.all)
if ask_again then return ask_again end

local is_admitted = true
for place = 1, math.min(tonumber(ARGV[2]), #decided.deciding) do
  is_admitted = is_admitted and decided.deciding[place].fits
end
for _, b in ipairs(decided.all) do
  if b.outcome ~= 'unasked' then note(b) end
end
for _, b in ipairs(decided.deciding) do settle(b, is_admitted) end

local reply = {'told', digits(now)}
for _, b in ipairs(decided.all) do
  reply[#reply + 1] = b.outcome
  reply[#reply + 1] = b.told or ''
end
return reply
