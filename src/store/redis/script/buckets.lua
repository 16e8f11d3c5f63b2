-- Buckets: what is common to all algorithms.
--
-- The value of a key is a recipe (the algorithm in five numbers), `|`, and the state. A kind of algorithm is a table, which
-- its function in `kinds` makes: those that a call does not need are not made.
--   parameters  the names of its numbers, in the order of ARGV
--   read(b)     reads the state into the bucket; changes nothing in Redis
--   fits(b)     whether b.cost more units are admitted
--   charge(b)   takes them
--   owe(b)      charges a refused request, into debt; where nobody can owe, there is none
--   told(b)     the state as Rust decides on it

local now
local kinds, made = {}, {}

local function kind_of(name)
  made[name] = made[name] or kinds[name]()
  return made[name]
end

-- From when on a key may go: when its bucket is whole, in milliseconds of the server's clock. Where the caller gives the
-- time, that clock is another, and may stand still: keys stay an hour longer.
local lead = 0
local function deadline(expires) return digits(floor((expires + lead + 999) / 1000)) end

local function set_time(given)
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  if given ~= '' then
    lead = now - given + 3600000000
    now = tonumber(given)
  end
end

-- Gives up with an error that names the key. Only while buckets are read, when nothing has been written: `attempt` catches it.
local function fail(b, why) error({why = 'SLUICEGATE ' .. why .. ': ' .. b.key}) end

-- What `reading` returns; the second is the error that it failed with.
local function attempt(reading)
  local is_done, result = pcall(reading)
  if is_done then return result end
  if type(result) == 'table' and result.why then return nil, redis.error_reply(result.why) end
  error(result)
end

local function call(b, ...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then fail(b, reply.err) end
  return reply
end

-- The state in a value. It is none where there is no value, and where the recipe is another: then `b.other` says so,
-- unless the caller knows the value already, and what it is under this recipe.
local function state_of(b, value)
  if not value or value == '' then return nil end
  if string.sub(value, 1, #b.recipe) == b.recipe then return string.sub(value, #b.recipe + 1) end
  -- All of it: a recipe may be longer than what was read.
  b.other = call(b, 'GET', b.key)
  if not string.find(b.other, '^%d+%.%d+%.%d+%.%d+%.%d+|') then fail(b, 'what is there is not ours') end
  b.digest_of_other = redis.sha1hex(b.other)
  b.is_converted = b.digest == b.digest_of_other
  if not b.is_converted or b.instead == '' then return nil end
  return string.sub(b.instead, #b.recipe + 1)
end

-- Puts what the caller made of a value under another recipe in its place.
local function convert(b)
  b.is_converted = false
  if b.instead == '' then
    redis.call('DEL', b.key)
  else
    redis.call('SET', b.key, b.instead, 'PXAT', deadline(b.expires))
  end
end

-- Cells: a state of an instant and two counters, as three numbers. They have `after(b)` and `debt(b)`, which return the
-- three after a charge or a debt; nil where they stay, of `after` where the charge does not fit. What is given back makes
-- three numbers, too: `less(b)`, for a cell that still counts.
local cells = {}

local function cell_text(expires, a, b) return string.format('%.0f %.0f %.0f', expires, a, b) end

-- Where costs are settled two numbers follow: how many units are still to be settled, and since when they are counted, which
-- tells a bucket from what it was before it was whole.
function cells.read(b)
  local state = state_of(b, call(b, 'GET', b.key))
  b.expires, b.a, b.b, b.unsettled, b.since, b.state = 0, 0, 0, 0, 0, '0 0 0'
  if not state then return end
  local expires, one, two, more = string.match(state, '^(%d+) (%d+) (%d+)(.*)$')
  local unsettled, since = 0, 0
  if more and more ~= '' then unsettled, since = string.match(more, '^ (%d+) (%d+)$') end
  if not expires or not unsettled then fail(b, 'what is there cannot be read') end
  b.expires, b.a, b.b, b.state = tonumber(expires), tonumber(one), tonumber(two), state
  if b.expires > now then
    b.unsettled, b.since = tonumber(unsettled), tonumber(since)
  else
    b.state = expires .. ' ' .. one .. ' ' .. two
  end
end

local function write_cell(b, expires, one, two)
  b.expires, b.a, b.b = expires, one, two
  b.state = cell_text(expires, one, two)
  if b.since > 0 then b.state = b.state .. string.format(' %.0f %.0f', b.unsettled, b.since) end
  redis.call('SET', b.key, b.recipe .. b.state, 'PXAT', deadline(expires))
end

-- Counts the units of a charge that is settled later.
local function reserve(b)
  if b.since == 0 then b.since = now end
  b.unsettled = b.unsettled + b.cost
end

function cells.fits(b)
  if b.cost == 0 then return true end
  b.next = {b.rules.after(b)}
  return b.next[1] ~= nil
end

function cells.charge(b) write_cell(b, b.next[1], b.next[2], b.next[3]) end

function cells.owe(b)
  local expires, one, two = b.rules.debt(b)
  if expires then write_cell(b, expires, one, two) end
end

-- Writes a cell; of a bucket that is whole there is none.
local function put_cell(b, expires, one, two)
  if expires > 0 then write_cell(b, expires, one, two) else redis.call('DEL', b.key) end
end

-- As it is written already: to write a number of 16 digits takes nearly as long as a call of Redis.
function cells.told(b) return b.state end

local function cell_kind(parameters, after, debt, less)
  return {
    parameters = parameters, after = after, debt = debt, less = less,
    read = cells.read, fits = cells.fits, charge = cells.charge, owe = debt and cells.owe, told = cells.told,
  }
end
