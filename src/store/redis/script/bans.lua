-- Counts strikes of a policy, bans whom all nodes together have refused too often, and tells of the bans of others. May be
-- repeated: a strike counts once.
--
-- KEYS  the stream of the policy's bans; then for each strike the key of what is remembered of whom, which may come several times.
-- ARGV  the instant, as for charges; the last entry of the stream that the caller has read, or nothing, and how many he reads
--       at most; how many strikes bring a ban about, within how many microseconds; how many lengths of bans there are, and
--       each in microseconds. For each strike the fingerprint of whom, an id that no other strike has, how many microseconds ago it
--       was, how many bans its node knows of with it, and in how many microseconds the one ends that it brought about there, or 0.
-- Reply the last entry that the caller has read by now; why a strike could not be counted, or nothing. For each ban that holds,
--       those of the stream first: the fingerprint, its number, microseconds to its end, and '1' if these strikes brought it about
--       and their node does not know.
--
-- What is remembered is how often somebody was banned, when the last ban ends, and the latest strike; `|`; and of the strikes that
-- count, the oldest first as they came, the id and the instant.

local stream, enough, within, lengths = KEYS[1], tonumber(ARGV[4]), ARGV[5] + 0.0, tonumber(ARGV[6])
local MOST_BANS = 65536

local function length(ban)
  if ban == 0 then return 0 end
  return ARGV[6 + math.min(ban, lengths)] + 0.0
end

local function forgotten(b) return b.last + within + length(b.bans) end

local function forget(b) b.bans, b.ends, b.last, b.strikes = 0, 0, 0, {} end

local function remember(b)
  forget(b)
  local value = call(b, 'GET', b.key)
  if not value then return end
  local bans, ends, last, strikes = string.match(value, '^(%d+) (%d+) (%d+)|(.*)$')
  if not bans then fail(b, 'what is there is not ours') end
  b.bans, b.ends, b.last = tonumber(bans), tonumber(ends), tonumber(last)
  for id, at in string.gmatch(strikes, '(%x+) (%d+);') do b.strikes[#b.strikes + 1] = {id = id, at = tonumber(at)} end
end

-- Whether it counts: those of before a ban ends do not, whenever they are told.
local function is_new(b)
  for _, strike in ipairs(b.strikes) do
    if strike.id == b.id then return false end
  end
  return b.at >= b.ends
end

local function add(b)
  b.last = math.max(b.last, b.at)
  local counting = {}
  b.strikes[#b.strikes + 1] = b
  for _, strike in ipairs(b.strikes) do
    if strike.at + within > b.last then counting[#counting + 1] = strike end
  end
  b.strikes = counting
end

local function ban(b, number, ends)
  b.bans, b.ends, b.strikes = number, ends, {}
  b.last = math.max(b.last, ends - length(number))
  redis.call('XADD', stream, 'MAXLEN', '~', MOST_BANS, '*', 'key', b.whom, 'ban', digits(number), 'ends', digits(ends))
  if redis.call('PTTL', stream) * 1000 < ends - now then redis.call('PEXPIREAT', stream, deadline(ends)) end
end

local function count(b)
  if b.at >= forgotten(b) then forget(b) end
  -- What its node knows of from a server that has forgotten it.
  b.bans = math.max(b.bans, b.claims and b.theirs - 1 or b.theirs)
  local is_ban = false
  if is_new(b) then
    add(b)
    is_ban = #b.strikes >= enough
    if is_ban then ban(b, b.bans + 1, b.last + length(b.bans + 1)) end
  end
  if b.claims and (b.theirs > b.bans or b.ends <= now) then ban(b, math.max(b.theirs, b.bans), b.claims) end
  local strikes = {}
  for i, strike in ipairs(b.strikes) do strikes[i] = strike.id .. ' ' .. digits(strike.at) .. ';' end
  local head = digits(b.bans) .. ' ' .. digits(b.ends) .. ' ' .. digits(b.last) .. '|'
  redis.call('SET', b.key, head .. table.concat(strikes))
  redis.call('PEXPIREAT', b.key, deadline(forgotten(b)))
  return is_ban and not b.claims
end

local reply = {ARGV[2], ''}

local function tell(whom, number, ends, is_own)
  if ends <= now then return end
  for _, field in ipairs({whom, digits(number), digits(ends - now), is_own and '1' or '0'}) do reply[#reply + 1] = field end
end

local from = ARGV[2] == '' and '-' or '(' .. ARGV[2]
for _, entry in ipairs(redis.call('XRANGE', stream, from, '+', 'COUNT', ARGV[3])) do
  reply[1] = entry[1]
  tell(entry[2][2], tonumber(entry[2][4]), tonumber(entry[2][6]), false)
end
for i = 2, #KEYS do
  local at = 6 + lengths + 5 * (i - 2)
  local claims = ARGV[at + 5] + 0.0
  local b = {
    key = KEYS[i], whom = ARGV[at + 1], id = ARGV[at + 2], at = now - ARGV[at + 3], theirs = tonumber(ARGV[at + 4]),
    claims = claims > 0 and now + claims,
  }
  local is_read, failure = pcall(remember, b)
  if is_read then
    local is_own = count(b)
    tell(b.whom, b.bans, b.ends, is_own)
  else
    reply[2] = tostring(failure)
  end
end
return reply
