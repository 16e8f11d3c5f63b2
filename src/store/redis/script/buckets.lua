-- Buckets: what is common to all algorithms.
--
-- The value of a key is a recipe (the algorithm in five numbers), `|`, and the state. A kind of algorithm is a table in
-- `kinds`:
--   numbers     how many it has in ARGV
--   read(b)     reads the state into the bucket; changes nothing in Redis
--   fits(b)     whether b.cost more units are admitted
--   charge(b)   takes them
--   owe(b)      charges a refused request, into debt; where nobody can owe, there is none
--   take_back(b) where the state is no cell: gives back units of a charge, whose cell was `b.then_expires`
--   told(b)     the state as Rust decides on it, where that is not b.state
-- A bucket is a table with its `key`, `cost` and `recipe`, and the place `at` which its numbers begin in ARGV, less one.
--
-- The server makes all functions of a script anew at each call, and all that they share: few and large ones are faster.

local kinds = {}

-- From when on a key may go: when its bucket is whole, in milliseconds of the server's clock. Where the caller gives the
-- time, that clock is another, and may stand still: keys stay an hour longer.
local time = redis.call('TIME')
local now, lead = time[1] * 1000000 + time[2], 0
if ARGV[1] ~= '' then
  lead = now - ARGV[1] + 3600000000
  now = ARGV[1] + 0.0
end
local function deadline(expires) return digits(floor((expires + lead + 999) / 1000)) end

-- A number of the algorithm: a double also where Lua has integers, which would go round at 2^63.
local function number(b, place) return ARGV[b.at + place] + 0.0 end

-- Gives up with an error that names the key. Only while buckets are read, when nothing has been written.
local function fail(b, why) error('SLUICEGATE ' .. why .. ': ' .. b.key, 0) end

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
