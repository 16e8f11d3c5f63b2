-- Takes a node's report on keys, bans the keys that all nodes together refused too often, and
-- replies the bans of other nodes. A report has all that counts of a key, so that a repetition
-- counts nothing twice.
--
-- KEYS  the stream of the policy's bans; then the record of each reported key.
-- ARGV  the instant, as for charges; the last entry of the stream that the node has read, or
--       nothing, and how many it reads at most; the node; how many strikes cause a ban, within how
--       many microseconds; how many lengths of bans there are, and each in microseconds.
--       For each key its fingerprint; the number of the last ban that the node knows, 0 for none,
--       and the microseconds to its end, below 0 when it is over; and for each strike since then
--       its age in microseconds.
-- Reply the entry that the node has now read, nothing if the stream has forgotten the one before;
--       why a part of the report failed, or nothing. For each ban that the node may not know, those
--       of the stream last: the fingerprint, its number, the microseconds to its end and until it
--       is forgotten, and '1' if this report caused it.
--
-- The record of a key: its number of bans, the end of the last ban, the latest strike, `|`, and for
-- each node its name and the instants of its strikes that count, ended by `;`. A lifted ban leaves
-- the number 0, and the instant of its lifting as the end. In the stream it has the number 0.

local stream, read, node = KEYS[1], ARGV[2], ARGV[4]
local strikes_to_ban, within, lengths = tonumber(ARGV[5]), ARGV[6] + 0.0, tonumber(ARGV[7])
local MOST_BANS = 65536
local reply, announced = {read, ''}, {}

local function length(ban)
  if ban == 0 then return 0 end
  return ARGV[7 + math.min(ban, lengths)] + 0.0
end

local function record_expiry(b) return b.last + within + length(b.bans) end

local function reset_record(b) b.bans, b.ends, b.last, b.strikes = 0, 0, 0, {} end

local function read_record(b)
  reset_record(b)
  local value = call(b, 'GET', b.key)
  if not value then return end
  local bans, ends, last, strikes = string.match(value, '^(%d+) (%d+) (%d+)|(.*)$')
  if not bans then fail(b, 'what is there is not ours') end
  -- A clock that was set back makes no ban longer.
  b.bans, b.last = tonumber(bans), math.min(tonumber(last), now)
  b.ends = math.min(tonumber(ends), now + length(b.bans))
  for its_node, instants in string.gmatch(strikes, '(%x+)([ %d]+);') do
    b.strikes[its_node] = {}
    for at in string.gmatch(instants, '%d+') do table.insert(b.strikes[its_node], tonumber(at)) end
  end
end

local function reply_ban(fingerprint, number, ends, forgotten_at, is_own)
  local left, remembered = format('%.0f', ends - now), format('%.0f', forgotten_at - now)
  for _, field in ipairs({fingerprint, digits(number), left, remembered, is_own and '1' or '0'}) do reply[#reply + 1] = field end
end

local function announce(b)
  b.last = math.max(b.last, b.ends - length(b.bans))
  if b.ends <= now then return end
  local entry = redis.call('XADD', stream, 'MAXLEN', '~', MOST_BANS, '*', 'key', b.fingerprint, 'ban', digits(b.bans), 'ends', digits(b.ends))
  announced[entry] = true
  local left = redis.call('PTTL', stream)
  if left < 0 or left * 1000 < b.ends - now then redis.call('PEXPIREAT', stream, deadline(b.ends)) end
end

-- Takes over the node's last ban if it has a higher number, or if it holds and none holds here. A
-- ban that began after the end of the last one here is the next, whatever number the node gives it.
local function take_over_ban(b)
  local began = b.reported_end - length(b.reported_number)
  if b.bans == 0 and began < b.ends then return end
  local is_next = b.reported_number > 0 and b.reported_number <= b.bans and b.ends <= began and began <= now
  if b.reported_number <= b.bans and not is_next and (b.reported_end <= now or b.ends > now) then return end
  b.bans = is_next and b.bans + 1 or math.max(b.bans, b.reported_number)
  b.ends = math.max(b.ends, b.reported_end)
  announce(b)
end

-- The number of strikes that count: none from before the end of the last ban, however late its
-- report.
local function count_strikes(b)
  local counting, all = {}, 0
  for its_node, instants in pairs(b.strikes) do
    local kept = {}
    for _, at in ipairs(instants) do
      if at >= b.ends and at + within > b.last then kept[#kept + 1] = at end
    end
    if #kept > 0 then counting[its_node], all = kept, all + #kept end
  end
  b.strikes = counting
  return all
end

local function write_record(b)
  local parts = {digits(b.bans), ' ', digits(b.ends), ' ', digits(b.last), '|'}
  for its_node, instants in pairs(b.strikes) do
    parts[#parts + 1] = its_node
    for _, at in ipairs(instants) do parts[#parts + 1] = ' ' .. digits(at) end
    parts[#parts + 1] = ';'
  end
  -- Machines may report a lifted ban for longer than strikes count.
  local left = b.bans == 0 and b.ends > 0 and math.max(0, redis.call('PTTL', b.key)) or 0
  redis.call('SET', b.key, table.concat(parts))
  redis.call('PEXPIREAT', b.key, deadline(math.max(record_expiry(b), now + left * 1000)))
end

local function apply_report(b)
  local own, newest = {}, 0
  for ago in string.gmatch(b.strike_ages, '%d+') do
    own[#own + 1] = now - ago
    newest = math.max(newest, now - ago)
  end
  local is_lifted = b.bans == 0 and b.ends > 0
  if not is_lifted and (newest > 0 and newest or now) >= record_expiry(b) then reset_record(b) end
  take_over_ban(b)
  b.last = math.max(b.last, newest)
  b.strikes[node] = own
  local is_own = count_strikes(b) >= strikes_to_ban
  if is_own then
    b.bans, b.ends, b.strikes = b.bans + 1, b.last + length(b.bans + 1), {}
    announce(b)
  end
  write_record(b)
  if b.bans > b.reported_number or b.ends > now then reply_ban(b.fingerprint, b.bans, b.ends, record_expiry(b), is_own) end
end

local function read_announcements()
  local entries = redis.call('XRANGE', stream, read == '' and '-' or read, '+', 'COUNT', ARGV[3])
  if read ~= '' and not (entries[1] and entries[1][1] == read) then
    reply[1] = ''
    return
  end
  for _, entry in ipairs(entries) do
    local number, ends = tonumber(entry[2][4]), tonumber(entry[2][6])
    ends = math.min(ends, now + length(number))
    local is_known = entry[1] == read or announced[entry[1]]
    if (ends > now or number == 0) and not is_known then reply_ban(entry[2][2], number, ends, ends + within, false) end
    reply[1] = entry[1]
  end
end

for i = 2, #KEYS do
  local at = 7 + lengths + 4 * (i - 2)
  local b = {
    key = KEYS[i], fingerprint = ARGV[at + 1], reported_number = tonumber(ARGV[at + 2]),
    reported_end = now + ARGV[at + 3], strike_ages = ARGV[at + 4],
  }
  local is_read, failure = pcall(read_record, b)
  if is_read then apply_report(b) else reply[2] = tostring(failure) end
end
-- Reads also the new announcements, so that their reporter notices a server that forgets them.
read_announcements()
return reply
