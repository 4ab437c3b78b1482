/**
 * The one Lua script of the store in Redis. It dispatches on an operation, so each operation is atomic and takes one
 * round trip. All windows are by the clock of the server. Numbers are sent and returned as text, because Lua would
 * round large ones.
 */

/** KEYS[1]: the prefix, a hash tag. ARGV[1]: the operation. ARGV[2]: the version. The others: see each operation. */
export const SCRIPT = `
local prefix = KEYS[1]
local op = ARGV[1]
local meta, values, changed = prefix .. 'meta', prefix .. 'values', prefix .. 'changes'
local used, brief, alive = prefix .. 'used', prefix .. 'brief', prefix .. 'alive'
local version = redis.call('HGET', meta, 'version')
if version ~= ARGV[2] then return {'version', version or '0'} end

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local function text(number) return string.format('%.0f', number) end
local function counterOf(c) return prefix .. 'c' .. c.n end
local function slotsOf(c) return prefix .. 's' .. c.n end
local STALE_MS = 2592000000

-- When a process was heard again after none had been: since then, the others had little time to be heard.
local function resumed() return tonumber(redis.call('HGET', meta, 'resumed') or '0') end

local function readCounter(c)
  local row = redis.call('HMGET', counterOf(c), 'since', '0', '1', '2', '3')
  if not row[1] then return nil end
  return {since = tonumber(row[1]), tonumber(row[2]), tonumber(row[3]), tonumber(row[4]), tonumber(row[5])}
end

local function writeCounter(c, since, a)
  redis.call('HSET', counterOf(c), 'since', text(since),
    '0', text(a[1]), '1', text(a[2]), '2', text(a[3]), '3', text(a[4]))
  redis.call('ZADD', c.s and brief or used, text(now), c.n)
  if c.s then
    redis.call('ZREMRANGEBYSCORE', brief, '-inf', text(now - STALE_MS))
    redis.call('SADD', prefix .. 'e' .. c.s, c.n)
    redis.call('PEXPIRE', counterOf(c), STALE_MS)
    redis.call('PEXPIRE', prefix .. 'e' .. c.s, STALE_MS)
  end
end

local function dropCounter(name)
  redis.call('ZREM', used, name)
  redis.call('ZREM', brief, name)
  return redis.call('DEL', prefix .. 'c' .. name)
end

local function news(from)
  local seq = tonumber(redis.call('HGET', meta, 'seq'))
  local floor = tonumber(redis.call('HGET', meta, 'floor'))
  local list = {}
  if from == '' or tonumber(from) < floor or tonumber(from) > seq then
    return {text(seq), '1', redis.call('HGETALL', values)}
  end
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', changed, '(' .. from, '+inf')) do
    local value = redis.call('HGET', values, field)
    list[#list + 1] = field
    list[#list + 1] = value and ('=' .. value) or ''
  end
  return {text(seq), '0', list}
end

if op == 'reserve' then
  -- claims, most ahead, held ahead, lease, mark, lease time, time to return
  local claims = cjson.decode(ARGV[3])
  local further, held = tonumber(ARGV[4]), tonumber(ARGV[5])
  local ahead = further > 0
  local draws = {}
  for i, c in ipairs(claims) do
    local last = readCounter(c)
    local before = last or {since = now, 0, 0, 0, 0}
    if last and c.w then
      -- A clock that was set back begins the window again, and keeps what was spent.
      if now < last.since then before = {since = now, last[1], last[2], last[3], last[4]}
      elseif now - last.since >= c.w then before = {since = now, 0, 0, 0, 0} end
    end
    local took = {0, 0, 0, 0}
    for _, d in ipairs(c.d) do
      local unit, limit, most, least = d[1] + 1, d[2], d[3], d[4]
      local left = math.max(0, limit - before[unit])
      if left < least then
        -- The new window is stored, so that it does not begin again at each refusal.
        if last and before.since ~= last.since then writeCounter(c, before.since, before) end
        return {'refused', text(now), text(i - 1), text(unit - 1), text(left), text(before.since)}
      end
      took[unit] = math.min(most, left)
      if ahead and most > 0 then
        local share = math.floor((limit - before[unit] - most) / 64 / most)
        further = math.max(0, math.min(further, share - held))
      end
    end
    draws[i] = {before = before, took = took}
  end
  for i, c in ipairs(claims) do
    if c.c and redis.call('HLEN', slotsOf(c)) >= c.c then
      -- Whether the holders are alive is asked only if the budget is full.
      local isSure = resumed() <= now - tonumber(ARGV[9])
      local slots = isSure and redis.call('HGETALL', slotsOf(c)) or {}
      for j = 1, #slots, 2 do
        local seen = redis.call('ZSCORE', alive, slots[j + 1])
        if not seen or tonumber(seen) <= now - tonumber(ARGV[8]) then redis.call('HDEL', slotsOf(c), slots[j]) end
      end
      if redis.call('HLEN', slotsOf(c)) >= c.c then
        return {'refused', text(now), text(i - 1), '4', '0', text(draws[i].before.since)}
      end
    end
  end
  local answer = {'taken', text(now)}
  for i, c in ipairs(claims) do
    local before, took = draws[i].before, draws[i].took
    local any = false
    for u = 1, 4 do
      took[u] = took[u] * (1 + further)
      before[u] = before[u] + took[u]
      any = any or took[u] ~= 0
    end
    if any then writeCounter(c, before.since, before) end
    if c.c then redis.call('HSET', slotsOf(c), ARGV[6], ARGV[7]) end
    if c.c and c.s then redis.call('PEXPIRE', slotsOf(c), STALE_MS) end
    answer[#answer + 1] = {text(before.since), text(took[1]), text(took[2]), text(took[3]), text(took[4])}
  end
  return answer
end

if op == 'settle' then
  -- changes, lease
  for _, c in ipairs(cjson.decode(ARGV[3])) do
    if c.a and redis.call('HGET', counterOf(c), 'since') == c.t then
      for u = 1, 4 do
        if c.a[u] ~= '0' then redis.call('HINCRBY', counterOf(c), text(u - 1), c.a[u]) end
      end
    end
    if c.c then redis.call('HDEL', slotsOf(c), ARGV[4]) end
  end
  return {'ok'}
end

if op == 'end' then
  -- scope and key
  for _, name in ipairs(redis.call('SMEMBERS', prefix .. 'e' .. ARGV[3])) do dropCounter(name) end
  redis.call('DEL', prefix .. 'e' .. ARGV[3])
  return {'ok'}
end

if op == 'counters' then
  -- how many: the last ones of two lists
  local answer, most = {'ok'}, tonumber(ARGV[3])
  local lasting = redis.call('ZREVRANGE', used, 0, most - 1, 'WITHSCORES')
  local others = redis.call('ZREVRANGE', brief, 0, most - 1, 'WITHSCORES')
  local i, j = 1, 1
  while #answer <= most and (lasting[i] or others[j]) do
    local name
    if lasting[i] and (not others[j] or tonumber(lasting[i + 1]) >= tonumber(others[j + 1])) then
      name = lasting[i]
      i = i + 2
    else
      name = others[j]
      j = j + 2
    end
    local row = redis.call('HMGET', prefix .. 'c' .. name, 'since', '0', '1', '2', '3')
    if row[1] then answer[#answer + 1] = {name, row[1], row[2], row[3], row[4], row[5]}
    else dropCounter(name) end
  end
  return answer
end

if op == 'reset' then
  -- names of counters
  local count = 0
  for i = 3, #ARGV do count = count + dropCounter(ARGV[i]) end
  return {'ok', text(count)}
end

if op == 'write' then
  -- kind, field, expected ('=' and the value, or ''), new value, from, kept changes
  local kind, field, only, to, keep = ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[8])
  local found = redis.call('HGET', values, field)
  local expected = only ~= '' and string.sub(only, 2) or nil
  local result = false
  if kind == 'put' or (kind == 'swap' and (found or nil) == expected) then
    redis.call('HSET', values, field, to)
    result = '1'
  elseif (kind == 'remove' or kind == 'take') and found and (not expected or found == expected) then
    redis.call('HDEL', values, field)
    result = found
  end
  if result then
    local seq = redis.call('HINCRBY', meta, 'seq', 1)
    redis.call('ZADD', changed, seq, field)
    if seq % keep == 0 then
      redis.call('ZREMRANGEBYSCORE', changed, '-inf', seq - keep)
      redis.call('HSET', meta, 'floor', seq - keep)
    end
    redis.call('PUBLISH', prefix .. 'news', '')
  end
  return {'ok', result, news(ARGV[7])}
end

if op == 'news' then
  -- from, mark, lease time
  local last = redis.call('ZREVRANGE', alive, 0, 0, 'WITHSCORES')[2]
  if not last or tonumber(last) <= now - tonumber(ARGV[5]) / 2 then redis.call('HSET', meta, 'resumed', text(now)) end
  if ARGV[4] ~= '' then redis.call('ZADD', alive, text(now), ARGV[4]) end
  redis.call('ZREMRANGEBYSCORE', alive, '-inf', text(now - tonumber(ARGV[5])))
  return {'ok', text(now), news(ARGV[3]), redis.call('ZRANGE', alive, 0, -1), text(resumed())}
end

if op == 'leave' then
  redis.call('ZREM', alive, ARGV[3])
  return {'ok'}
end

return redis.error_reply('unknown operation')
`;
