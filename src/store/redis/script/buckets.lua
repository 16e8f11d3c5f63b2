-- Buckets: the common part of all algorithms.
--
-- The value of a key is the state of a bucket. Kind and window are part of the key's name, and counts
-- are the same under any quota. A state that depends on the rate, too, follows the rate and `|`: the
-- rate under which it was written, which the reader converts to its own. Each kind of algorithm is a
-- table in `kinds`:
--   numbers        the count of its numbers in ARGV
--   rate           the place of the rate among them, if the state depends on it
--   convert(b, expires, one, from, to)  for these kinds, the first two numbers of a cell under
--                  another rate; against the client by less than two microseconds
--   read(b)        reads the state into the bucket; changes nothing in Redis
--   fits(b)        true if b.cost more units are admitted; in a window the b.needed units, which are
--                  those and the units that have to stay
--   charge(b)      charges b.cost units
--   owe(b)         charges a refused request, into debt; missing if the kind has no debt
--   take_back(b)   gives back units of the charge that left `b.then_expires`; only for states that
--                  are no cell
--   reply_state(b) the state in the form that Rust decides on, if that is not b.state
-- A bucket is a table with its `key` and `cost`, and the place `at` before its numbers in ARGV.
--
-- The server defines all functions and tables of a script anew for each call: few and large ones
-- are faster.

local kinds = {}

-- The expiry of a key: the instant at which its bucket is full, in milliseconds of the server's
-- clock. A caller's time may come from another clock, or stand still: such keys stay an hour
-- longer.
local time = redis.call('TIME')
local now, lead = time[1] * 1000000 + time[2], 0
if ARGV[1] ~= '' then
  lead = now - ARGV[1] + 3600000000
  now = ARGV[1] + 0.0
end
local function deadline(expires) return digits(floor((expires + lead + 999) / 1000)) end

-- A number of the algorithm: a double also if Lua has integers, which would wrap at 2^63.
local function number(b, place) return ARGV[b.at + place] + 0.0 end

-- Raises an error that names the key. Only for reading, before any write.
local function fail(b, why) error('SLUICEGATE ' .. why .. ': ' .. b.key, 0) end

local function call(b, ...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then fail(b, reply.err) end
  return reply
end
