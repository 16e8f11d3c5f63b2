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
-- Reply a line of words: `told`, the instant, and for each bucket
--         `charged`;
--         `spared` where it would have been charged, but another refuses;
--         `refused`; `owed`; `unasked`;
--       then for each bucket its state: that before the charge, or that with the debt, or '' where it was not asked;
--       or `again` and the instant, and for each bucket under another recipe its place, the digest of its value and the value:
--       then nothing was charged. There may be none: a window does not reach to that instant, or not from it.

-- The bucket whose arguments come after this place, and the place of the last of them.
local function bucket_of(key, at)
  -- With its other fields from the start: a table that grows is slow.
  local b = {
    key = key, rules = kind_of(ARGV[at + 1]), tier = ARGV[at + 2], cost = tonumber(ARGV[at + 3]), hope = ARGV[at + 4],
    settles = ARGV[at + 5], debt = ARGV[at + 6], recipe = ARGV[at + 7], digest = ARGV[at + 8], instead = ARGV[at + 9],
    fits = false, outcome = 'unasked', told = '', next = '', state = '', expires = 0, a = 0, b = 0, unsettled = 0, since = 0,
    is_converted = false,
  }
  at = at + 9
  for _, name in ipairs(b.rules.parameters) do
    at = at + 1
    local value = ARGV[at]
    local number = name ~= 'lease' and tonumber(value)
    -- A double also where Lua has integers, which would go round at 2^63.
    b[name] = number and number + 0.0 or value
  end
  return b, at
end

-- All buckets, and those that decide, one for each charge.
local all, deciding = {}, {}

local function decide()
  local at = 2
  for i, key in ipairs(KEYS) do
    local b
    b, at = bucket_of(key, at)
    all[i] = b
    local charges = #deciding
    if b.tier == 'first' then charges = charges + 1 end
    if b.tier == 'first' or not deciding[charges].fits then
      b.rules.read(b)
      b.fits = b.hope == 'may' and b.rules.fits(b)
      b.outcome = 'refused'
      deciding[charges] = b
    end
  end
end

local function is_to_be_asked_again()
  for _, b in ipairs(all) do
    if b.misfit or b.other and not b.is_converted then return true end
  end
  return false
end

-- What the caller has to know to ask again.
local function again()
  local reply = {'again ' .. digits(now)}
  for i, b in ipairs(all) do
    if b.other then
      reply[#reply + 1] = digits(i - 1)
      reply[#reply + 1] = b.digest_of_other
      reply[#reply + 1] = b.other
    end
  end
  return reply
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

local function told()
  local reply = {'told ' .. digits(now)}
  for i, b in ipairs(all) do
    reply[1] = reply[1] .. ' ' .. b.outcome
    reply[i + 1] = b.told
  end
  return reply
end

set_time(ARGV[1])
local _, failure = attempt(decide)
if failure then return failure end
if is_to_be_asked_again() then return again() end

local is_admitted = true
for place = 1, math.min(tonumber(ARGV[2]), #deciding) do
  is_admitted = is_admitted and deciding[place].fits
end
for _, b in ipairs(all) do
  if b.outcome ~= 'unasked' then note(b) end
end
for _, b in ipairs(deciding) do settle(b, is_admitted) end
return told()
