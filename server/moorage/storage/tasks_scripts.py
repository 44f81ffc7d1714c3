"""The Lua of :class:`~moorage.storage.tasks_redis.RedisTasks`: each is one atomic step.

Keys, all with one hash tag (``P`` is ``moorage:{tasks}``, every script's one key): ``P:queue:<handler>`` stream of
task ids with the consumer group ``workers`` · ``P:task:<id>`` the record · ``P:of:<account>:<session>`` ids of a
session's tasks, newest first · ``P:handlers`` names by when they were announced last · ``P:wake:<worker>`` a list
that has something when an answer came · ``P:epoch`` a random text; another one shows that Redis was wiped.
Fields of a record beside those of :class:`~moorage.storage.tasks.Record`: ``entry`` its id in the queue, ``worker``,
``beatAt``, ``lost`` how often its worker died, ``q:<question id>`` open questions, ``a:<question id>`` answers.
Times are Redis's own.
"""

from __future__ import annotations

_COMMON = """
local P = KEYS[1]
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function key_of(id) return P .. ':task:' .. id end
local function ended(status) return status == 'done' or status == 'failed' end
local function epoch(fresh)
  redis.call('SET', P .. ':epoch', fresh, 'NX')
  return redis.call('GET', P .. ':epoch')
end
-- 1: this attempt is the latest; 0: it is not; -1: there is no record
local function hold(key, attempt)
  local latest = redis.call('HGET', key, 'attempts')
  if not latest then return -1 end
  return tonumber(latest) == tonumber(attempt) and 1 or 0
end
local function drop_entry(key)
  local row = redis.call('HMGET', key, 'handler', 'entry')
  if row[1] and row[2] then
    local queue = P .. ':queue:' .. row[1]
    redis.pcall('XACK', queue, 'workers', row[2])
    redis.call('XDEL', queue, row[2])
    redis.call('HDEL', key, 'entry')
  end
end
local function keep(key, worker)
  local row = redis.call('HMGET', key, 'handler', 'entry')
  if row[1] and row[2] then
    redis.pcall('XCLAIM', P .. ':queue:' .. row[1], 'workers', worker, 0, row[2], 'JUSTID')
  end
end
local function enqueue(key, id, handler)
  local entry = redis.call('XADD', P .. ':queue:' .. handler, '*', 'task', id)
  redis.call('HSET', key, 'entry', entry)
end
local function close_questions(key)
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if string.sub(name, 1, 2) == 'q:' then redis.call('HDEL', key, name) end
  end
end
"""

ADD = (
    _COMMON
    + """
local id, account, session, handler = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now = clock()
if now > tonumber(ARGV[6]) then return 'late' end
local names = P .. ':handlers'
redis.call('ZREMRANGEBYSCORE', names, '-inf', now - tonumber(ARGV[7]))
if redis.call('ZCARD', names) > 0 and not redis.call('ZSCORE', names, handler) then return 'unknown handler' end
if redis.call('XLEN', P .. ':queue:' .. handler) >= tonumber(ARGV[8]) then return 'full' end
local key = key_of(id)
redis.call('HSET', key, 'account', account, 'session', session, 'handler', handler, 'input', ARGV[5],
           'status', 'queued', 'attempts', 0, 'createdAt', now)
enqueue(key, id, handler)
local of = P .. ':of:' .. account .. ':' .. session
redis.call('LPUSH', of, id)
redis.call('LTRIM', of, 0, tonumber(ARGV[9]) - 1)
redis.call('PERSIST', of)
return ''
"""
)
"""id, account, session, handler, input, latest time, known for, queue max, session max → '' or a Refused"""

GET = """
return redis.call('HGETALL', KEYS[1] .. ':task:' .. ARGV[1])
"""
"""id → fields"""

LATEST = """
local id = redis.call('LINDEX', KEYS[1] .. ':of:' .. ARGV[1] .. ':' .. ARGV[2], 0)
if not id then return {} end
return {id, redis.call('HGETALL', KEYS[1] .. ':task:' .. id)}
"""
"""account, session → {} | {id, fields}"""

ANSWER = (
    _COMMON
    + """
local key, question = key_of(ARGV[1]), ARGV[4]
local row = redis.call('HMGET', key, 'account', 'session', 'worker', 'q:' .. question)
if row[1] ~= ARGV[2] or row[2] ~= ARGV[3] or not row[4] then return 0 end
redis.call('HDEL', key, 'q:' .. question)
redis.call('HSET', key, 'a:' .. question, ARGV[5])
if row[3] then
  local wake = P .. ':wake:' .. row[3]
  redis.call('RPUSH', wake, 1)
  redis.call('LTRIM', wake, 0, 9)
  redis.call('PEXPIRE', wake, 60000)
end
return 1
"""
)
"""task, account, session, question, answer → 1: handed over"""

FORGET = (
    _COMMON
    + """
local of = P .. ':of:' .. ARGV[1] .. ':' .. ARGV[2]
for _, id in ipairs(redis.call('LRANGE', of, 0, -1)) do
  drop_entry(key_of(id))
  redis.call('UNLINK', key_of(id))
end
redis.call('DEL', of)
return 1
"""
)
"""account, session"""

BEGIN = (
    _COMMON
    + """
local id, handler, entry, worker = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local takeover, lost_max, now = tonumber(ARGV[5]), tonumber(ARGV[6]), clock()
local queue, key = P .. ':queue:' .. handler, key_of(id)
local pending = redis.pcall('XPENDING', queue, 'workers', entry, entry, 1)
if pending.err or #pending == 0 or pending[1][2] ~= worker then return {} end
local row = redis.call('HMGET', key, 'status', 'entry', 'worker', 'beatAt')
local status = row[1]
if not status or row[2] ~= entry then
  redis.call('XACK', queue, 'workers', entry)
  redis.call('XDEL', queue, entry)
  return {}
end
if status == 'running' then
  if row[3] ~= worker and now - tonumber(row[4]) < takeover then return {} end
  if redis.call('HINCRBY', key, 'lost', 1) >= lost_max then
    close_questions(key)
    redis.call('HSET', key, 'status', 'failed', 'error', ARGV[7])
    status = 'failed'
  end
end
redis.call('HINCRBY', key, 'attempts', 1)
redis.call('HSET', key, 'worker', worker, 'beatAt', now)
if not ended(status) then redis.call('HSET', key, 'status', 'running') end
keep(key, worker)
return {epoch(ARGV[8]), redis.call('HGETALL', key)}
"""
)
"""id, handler, entry, worker, takeover, lost max, error of too many, fresh epoch → {} | {epoch, fields}"""

BEAT = (
    _COMMON
    + """
local worker, handlers = ARGV[1], tonumber(ARGV[2])
local now, holds = clock(), {}
for n = 3, 2 + handlers do redis.call('ZADD', P .. ':handlers', now, ARGV[n]) end
for n = 3 + handlers, #ARGV, 2 do
  local key = key_of(ARGV[n])
  local held = hold(key, ARGV[n + 1])
  if held == 1 then
    redis.call('HSET', key, 'beatAt', now, 'worker', worker)
    keep(key, worker)
  end
  holds[#holds + 1] = held
end
return holds
"""
)
"""worker, number of handlers, handlers…, (task, attempt)… → 1 kept, 0 lost, -1 gone, each"""

RESTORE = (
    _COMMON
    + """
local id, account, session, handler, attempt = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[6])
local key, now = key_of(id), clock()
local latest = redis.call('HGET', key, 'attempts')
local today = epoch(ARGV[9])
if latest and tonumber(latest) >= attempt then return {tonumber(latest) == attempt and 1 or 0, today} end
if not latest and today == ARGV[8] then return {0, today} end
local known = redis.call('EXISTS', key) == 1
redis.call('HSET', key, 'account', account, 'session', session, 'handler', handler, 'input', ARGV[5],
           'status', 'running', 'attempts', attempt, 'createdAt', now, 'worker', ARGV[7], 'beatAt', now)
if not known then
  enqueue(key, id, handler)
  redis.call('RPUSH', P .. ':of:' .. account .. ':' .. session, id)
end
return {1, today}
"""
)
"""id, account, session, handler, input, attempt, worker, its epoch, fresh epoch → {1 or 0, epoch}"""

NOTE_FIRST = (
    _COMMON
    + """
local held = hold(key_of(ARGV[1]), ARGV[2])
if held == 1 then redis.call('HSET', key_of(ARGV[1]), 'firstId', ARGV[3], 'firstSeq', ARGV[4]) end
return held
"""
)
"""id, attempt, event id, event seq"""

FINISH = (
    _COMMON
    + """
local key = key_of(ARGV[1])
local held = hold(key, ARGV[2])
if held == 1 and not ended(redis.call('HGET', key, 'status')) then
  close_questions(key)
  redis.call('HSET', key, 'status', ARGV[3], ARGV[3] == 'done' and 'result' or 'error', ARGV[4])
end
return held
"""
)
"""id, attempt, status, outcome"""

ACKNOWLEDGE = (
    _COMMON
    + """
local key, keep_ms = key_of(ARGV[1]), tonumber(ARGV[3])
local held = hold(key, ARGV[2])
if held == 1 then
  drop_entry(key)
  if keep_ms > 0 then
    local row = redis.call('HMGET', key, 'account', 'session')
    local of = P .. ':of:' .. row[1] .. ':' .. row[2]
    redis.call('PEXPIRE', key, keep_ms)
    if redis.call('LINDEX', of, 0) == ARGV[1] then redis.call('PEXPIRE', of, keep_ms) end
  end
end
return held
"""
)
"""id, attempt, keep [ms]"""

RELEASE = (
    _COMMON
    + """
local key = key_of(ARGV[1])
local held = hold(key, ARGV[2])
if held == 1 and redis.call('HGET', key, 'status') == 'running' then
  drop_entry(key)
  redis.call('HSET', key, 'status', 'queued')
  enqueue(key, ARGV[1], redis.call('HGET', key, 'handler'))
end
return held
"""
)
"""id, attempt"""

ASK = (
    _COMMON
    + """
local key = key_of(ARGV[1])
local held = hold(key, ARGV[2])
if held == 1 and redis.call('HEXISTS', key, 'a:' .. ARGV[3]) == 0 then
  redis.call('HSET', key, 'q:' .. ARGV[3], ARGV[4])
end
return held
"""
)
"""id, attempt, question id, question"""

CLOSE = (
    _COMMON
    + """
local key = key_of(ARGV[1])
if hold(key, ARGV[2]) ~= 1 then return false end
redis.call('HDEL', key, 'q:' .. ARGV[3])
return redis.call('HGET', key, 'a:' .. ARGV[3])
"""
)
"""id, attempt, question id → answer"""

TIDY = (
    _COMMON
    + """
for n = 2, #ARGV do
  local queue = P .. ':queue:' .. ARGV[n]
  local consumers = redis.pcall('XINFO', 'CONSUMERS', queue, 'workers')
  for _, flat in ipairs(consumers.err and {} or consumers) do
    local row = {}
    for i = 1, #flat, 2 do row[flat[i]] = flat[i + 1] end
    if row['pending'] == 0 and row['idle'] > tonumber(ARGV[1]) then
      redis.call('XGROUP', 'DELCONSUMER', queue, 'workers', row['name'])
    end
  end
end
return 1
"""
)
"""idle [ms], handlers… : consumers of workers that are gone and hold nothing"""
