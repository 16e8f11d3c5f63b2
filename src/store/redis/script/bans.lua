-- Hears what a node knows of keys, bans whom all nodes together have refused too often, and tells of the bans of others. A node
-- tells all that counts of a key, so that nothing counts twice whatever is repeated.
--
-- KEYS  the stream of the policy's bans; then the key of what is remembered of each whom the node tells of.
-- ARGV  the instant, as for charges; the last entry of the stream that the node has read, or nothing, and how many it reads
--       at most; the node; how many strikes bring a ban about, within how many microseconds; how many lengths of bans there are,
--       and each in microseconds. Of each key its fingerprint; which ban was the last that the node knows of, 0 for none, and
--       in how many microseconds it ends, below 0 when it is over; and of each strike since then how many microseconds ago it was.
-- Reply the entry that the node has read by now, nothing if that was forgotten here; why some could not be told, or nothing. Of each
--       ban that the node may not know, those of the stream last: the fingerprint, its number, the microseconds to its end and to when
--       it is forgotten, and '1' if it comes about by what was told.
--
-- What is remembered is how often somebody was banned, when the last ban ends, the latest strike, `|`, and of each node its name and the
-- instants of its strikes that count, which end with `;`.

local stream, read, node = KEYS[1], ARGV[2], ARGV[4]
local enough, within, lengths = tonumber(ARGV[5]), ARGV[6] + 0.0, tonumber(ARGV[7])
local MOST_BANS = 65536
local reply, announced = {read, ''}, {}

local function length(ban)
  if ban == 0 then return 0 end
  return ARGV[7 + math.min(ban, lengths)] + 0.0
end

local function forgotten(b) return b.last + within + length(b.bans) end

local function forget(b) b.bans, b.ends, b.last, b.strikes = 0, 0, 0, {} end

local function remember(b)
  forget(b)
  local value = call(b, 'GET', b.key)
  if not value then return end
  local bans, ends, last, strikes = string.match(value, '^(%d+) (%d+) (%d+)|(.*)$')
  if not bans then fail(b, 'what is there is not ours') end
  -- A clock that was set back does not make a ban longer than it is.
  b.bans, b.last = tonumber(bans), math.min(tonumber(last), now)
  b.ends = math.min(tonumber(ends), now + length(b.bans))
  for whose, instants in string.gmatch(strikes, '(%x+)([ %d]+);') do
    b.strikes[whose] = {}
    for at in string.gmatch(instants, '%d+') do table.insert(b.strikes[whose], tonumber(at)) end
  end
end

local function tell(whom, number, ends, forgotten_at, is_own)
  local left, remembered = format('%.0f', ends - now), format('%.0f', forgotten_at - now)
  for _, field in ipairs({whom, digits(number), left, remembered, is_own and '1' or '0'}) do reply[#reply + 1] = field end
end

local function announce(b)
  b.last = math.max(b.last, b.ends - length(b.bans))
  if b.ends <= now then return end
  local entry = redis.call('XADD', stream, 'MAXLEN', '~', MOST_BANS, '*', 'key', b.whom, 'ban', digits(b.bans), 'ends', digits(b.ends))
  announced[entry] = true
  local left = redis.call('PTTL', stream)
  if left < 0 or left * 1000 < b.ends - now then redis.call('PEXPIREAT', stream, deadline(b.ends)) end
end

-- Takes over the last ban that the node knows of, if it is later, or another while none holds here. What began when the last one here
-- was over is the next, whatever the node takes it for.
local function hear(b)
  local began = b.until_then - length(b.theirs)
  local is_next = b.theirs > 0 and b.theirs <= b.bans and b.ends <= began and began <= now
  if b.theirs <= b.bans and not is_next and (b.until_then <= now or b.ends > now) then return end
  b.bans = is_next and b.bans + 1 or math.max(b.bans, b.theirs)
  b.ends = math.max(b.ends, b.until_then)
  announce(b)
end

-- How many strikes count: none of before the last ban ends, whenever it is told.
local function count(b)
  local counting, all = {}, 0
  for whose, instants in pairs(b.strikes) do
    local kept = {}
    for _, at in ipairs(instants) do
      if at >= b.ends and at + within > b.last then kept[#kept + 1] = at end
    end
    if #kept > 0 then counting[whose], all = kept, all + #kept end
  end
  b.strikes = counting
  return all
end

local function write(b)
  local parts = {digits(b.bans), ' ', digits(b.ends), ' ', digits(b.last), '|'}
  for whose, instants in pairs(b.strikes) do
    parts[#parts + 1] = whose
    for _, at in ipairs(instants) do parts[#parts + 1] = ' ' .. digits(at) end
    parts[#parts + 1] = ';'
  end
  redis.call('SET', b.key, table.concat(parts))
  redis.call('PEXPIREAT', b.key, deadline(forgotten(b)))
end

local function take_in(b)
  local own, newest = {}, 0
  for ago in string.gmatch(b.told, '%d+') do
    own[#own + 1] = now - ago
    newest = math.max(newest, now - ago)
  end
  if (newest > 0 and newest or now) >= forgotten(b) then forget(b) end
  hear(b)
  b.last = math.max(b.last, newest)
  b.strikes[node] = own
  local is_own = count(b) >= enough
  if is_own then
    b.bans, b.ends, b.strikes = b.bans + 1, b.last + length(b.bans + 1), {}
    announce(b)
  end
  write(b)
  if b.bans > b.theirs or b.ends > now then tell(b.whom, b.bans, b.ends, forgotten(b), is_own) end
end

local function read_on()
  local entries = redis.call('XRANGE', stream, read == '' and '-' or read, '+', 'COUNT', ARGV[3])
  if read ~= '' and not (entries[1] and entries[1][1] == read) then
    reply[1] = ''
    return
  end
  for _, entry in ipairs(entries) do
    local number, ends = tonumber(entry[2][4]), tonumber(entry[2][6])
    ends = math.min(ends, now + length(number))
    local is_known = entry[1] == read or announced[entry[1]]
    if ends > now and not is_known then tell(entry[2][2], number, ends, ends + within, false) end
    reply[1] = entry[1]
  end
end

for i = 2, #KEYS do
  local at = 7 + lengths + 4 * (i - 2)
  local b = {
    key = KEYS[i], whom = ARGV[at + 1], theirs = tonumber(ARGV[at + 2]), until_then = now + ARGV[at + 3], told = ARGV[at + 4],
  }
  local is_read, failure = pcall(remember, b)
  if is_read then take_in(b) else reply[2] = tostring(failure) end
end
-- With what was announced just now, so that whoever has announced it knows when the server forgets it.
read_on()
return reply
