-- Charges: decides a request by all of its limits at one instant, and charges all of them or none.
--
-- KEYS  a key for each bucket. The buckets of a charge follow one another: a further one is for what those before it
--       cannot pay.
-- ARGV  the instant, in microseconds since the epoch, or '' for the server's time;
--       how many of the charges, the first ones, may refuse the request: the others watch;
--       how many values under other recipes the caller knows of, and for each the place of its bucket, its digest, what it
--       is under the bucket's recipe, or '', and `left` where it takes the other's place whatever is decided, or '';
--       then for each bucket
--         the kind of algorithm;
--         `first` of its charge, or a `further` one;
--         the cost; `never` instead of `may` where no bucket ever holds as much;
--         `settles` where it is settled later what an admitted request costs, else `stays`;
--         `owe` where a refusal is charged, `owe_own` where only its own is, of a request that is admitted; else `free`;
--         the recipe, up to and with its `|`;
--         the numbers of the algorithm, as its file says.
-- Reply a line of words: `told`, the instant, and for each bucket
--         `charged`;
--         `spared` where it would have been charged, but another refuses;
--         `refused`; `owed`; `unasked`;
--       then for each bucket its state: that before the charge, or that with the debt, or '' where it was not asked;
--       or `again` and the instant, and for each bucket under another recipe its place, the digest of its value and the value:
--       then nothing was charged. There may be none: a window does not reach to that instant, or not from it.

-- All buckets, and those that decide, one for each charge.
local all, deciding = {}, {}
local is_to_be_asked_again = false

-- Asks one bucket after the other.
local function decide()
  local before = 3 + 4 * ARGV[3]
  local at, charges = before, 0
  for i = 1, #KEYS do
    -- With its fields from the start, and 16 at most: a table that grows is slow.
    local b = {
      key = KEYS[i], kind = kinds[ARGV[at + 1]], cost = ARGV[at + 3] + 0.0, recipe = ARGV[at + 7], at = at + 7, fits = false,
      outcome = 'unasked', told = '', state = '', expires = 0, a = 0, b = 0, next = 0, next_a = 0, next_b = 0,
    }
    for known = 4, before, 4 do
      if ARGV[known] + 1 == i then b.digest, b.instead, b.is_left = ARGV[known + 1], ARGV[known + 2], ARGV[known + 3] == 'left' end
    end
    local is_first = ARGV[at + 2] == 'first'
    if is_first then charges = charges + 1 end
    if is_first or not deciding[charges].fits then
      b.kind.read(b)
      b.fits = ARGV[at + 4] == 'may' and b.kind.fits(b)
      b.outcome = 'refused'
      deciding[charges] = b
      if b.misfit or b.other and not b.is_converted then is_to_be_asked_again = true end
    end
    all[i] = b
    at = b.at + b.kind.numbers
  end
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

local is_decided, failure = pcall(decide)
if not is_decided then return type(failure) == 'table' and failure or redis.error_reply(failure) end
if is_to_be_asked_again then return again() end

-- Puts right what is under another recipe: where it is left over, and before it is charged. Who is refused leaves what others may
-- still charge, and owes nothing: a smaller quota has no room for all that was used of a larger one, and who still has that
-- would admit again what was forgotten.
local function put_right(b)
  if not b.is_converted then return end
  if b.instead == '' or b.expires <= now then
    redis.call('DEL', b.key)
  else
    redis.call('SET', b.key, b.instead, 'PXAT', deadline(b.expires))
  end
  b.is_converted = nil
end

-- Notes what is told of those that were asked, and gives up what has expired.
for i = 1, #all do
  local b = all[i]
  if b.outcome ~= 'unasked' then
    b.told = b.kind.told and b.kind.told(b) or b.state
    if b.is_stale and not b.is_converted then redis.call('DEL', b.key) end
    if b.is_left then put_right(b) end
  end
end

local is_admitted = true
for place = 1, math.min(ARGV[2] + 0, #deciding) do
  is_admitted = is_admitted and deciding[place].fits
end
for i = 1, #deciding do
  local b = deciding[i]
  local kind, settles, debt = b.kind, ARGV[b.at - 2], ARGV[b.at - 1]
  local owes = b.cost > 0 and (debt == 'owe' or debt == 'owe_own' and is_admitted)
  if b.fits and (is_admitted or owes) then
    b.outcome = 'charged'
    if settles == 'settles' and is_admitted and b.cost > 0 then
      if not b.since then b.unsettled, b.since = 0, now end
      b.unsettled = b.unsettled + b.cost
    end
    if b.cost > 0 then
      put_right(b)
      kind.charge(b)
    end
  elseif b.fits then
    b.outcome = 'spared'
  elseif owes and kind.owe and not b.is_converted then
    b.outcome = 'owed'
    kind.owe(b)
    b.told = kind.told and kind.told(b) or b.state
  end
end

local reply = {'told ' .. digits(now)}
for i = 1, #all do
  reply[1] = reply[1] .. ' ' .. all[i].outcome
  reply[i + 1] = all[i].told
end
return reply
