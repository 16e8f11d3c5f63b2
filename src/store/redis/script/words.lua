-- The 4 bytes of a word, big-endian.
local function word(number)
  return string.char(floor(number / 16777216) % 256, floor(number / 65536) % 256, floor(number / 256) % 256, number % 256)
end

-- The big-endian word at this place; 0 beyond the end.
local function word_at(bytes, place)
  local a, b, c, d = string.byte(bytes, place, place + 3)
  if not d then return 0 end
  return ((a * 256 + b) * 256 + c) * 256 + d
end
