-- Cycles API keys, so that every request meets another bucket; prints what happened as one JSON line. Its arguments are the
-- path and the number of keys.

local requests = {}
local at = 0

init = function(arguments)
   local path, keys = arguments[1], tonumber(arguments[2])
   for key = 1, keys do
      requests[key] = wrk.format("GET", path, { ["x-api-key"] = string.format("key-%05d", key) })
   end
end

request = function()
   at = at % #requests + 1
   return requests[at]
end

done = function(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      '{"requests":%d,"microseconds":%d,"refused":%d,"broken":%d,"p50":%d,"p99":%d}\n',
      summary.requests, summary.duration, errors.status,
      errors.connect + errors.read + errors.write + errors.timeout,
      latency:percentile(50), latency:percentile(99)
   ))
end
