"""The Lua of :class:`~moorage.events.store_redis.RedisStore`: each is one atomic step over one session's two keys.

Keys (``S`` is ``moorage:events:{<session>}``, the braces are a hash tag): ``S`` the stream, with sliding expiry;
``S:meta`` a hash without expiry: ``epoch``, ``seq`` and ``last`` (number and id of the last entry), ``deleted``, and
for each process that appends the number of its last append, by which a repeated one is known.
"""

from __future__ import annotations

import hashlib


class Script:
    """Text and digest of a script."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


APPEND = Script("""
local stream, meta, origin, number = KEYS[1], KEYS[2], ARGV[7], ARGV[8]
local m = redis.call('HMGET', meta, 'epoch', 'seq', 'deleted', origin, 'last')
if m[3] then return {0} end
local epoch, seq = m[1], tonumber(m[2] or '0')
if not epoch then
  epoch = ARGV[11]
  redis.call('UNLINK', stream)
end
if m[4] and tonumber(m[4]) >= tonumber(number) then
  if ARGV[14] == '' then return {2} end
  for _, entry in ipairs(redis.call('XRANGE', stream, ARGV[14], '+')) do
    local f = entry[2]
    if f[4] == ARGV[1] and f[6] == ARGV[2] and f[8] == ARGV[3] and f[10] == ARGV[4] then
      return {1, entry[1], tonumber(f[2]), epoch, 0}
    end
  end
  return {2}
end
if not m[4] and redis.call('HLEN', meta) > 40 then
  for _, field in ipairs(redis.call('HKEYS', meta)) do
    if string.find(field, ':', 1, true) then redis.call('HDEL', meta, field) end
  end
end
if m[5] and redis.call('EXISTS', stream) == 0 then
  redis.call('XADD', stream, m[5], 'last', '')
  redis.call('XDEL', stream, m[5])
end
seq = seq + 1
local text = string.format('%.0f', seq)
local id = redis.call('XADD', stream, 'MAXLEN', '~', ARGV[9], '*',
                      'seq', text, 'type', ARGV[1], 'data', ARGV[2], 'key', ARGV[3], 'at', ARGV[4])
redis.call('HSET', meta, 'epoch', epoch, 'seq', text, 'last', id, origin, number)
redis.call('PEXPIRE', stream, ARGV[10])
local published = 0
if ARGV[12] ~= '' then
  local said = redis.pcall('PUBLISH', ARGV[12], ARGV[13] .. epoch .. '","id":"' .. id .. '","seq":' .. text ..
                           ',"event":' .. ARGV[5] .. ARGV[2] .. ARGV[6] .. '}')
  published = type(said) == 'number' and 1 or -1
end
return {1, id, seq, epoch, published}
""")
"""type, data, key, at, JSON before data, JSON after it, origin, number, maxlen, ttl, new epoch, channel or '',
beginning of the envelope, '' or '(' and the id after which a repeated append is looked for → {0: deleted} | {1, id,
seq, epoch, published: 1, 0 not asked, -1 failed} | {2: was appended, and is trimmed, or this is the late arrival of
what was repeated since, on a connection that we have given up}. Forty processes are more than append
to one session within the life of a number; when there are more, all numbers are forgotten. Origins have a colon.
A stream that expired is made anew as one that knows its last id: else a clock that went back, or the same millisecond,
would give an id that readers believe to have."""

READ = Script("""
local stream, meta = KEYS[1], KEYS[2]
local m = redis.call('HMGET', meta, 'epoch', 'seq', 'last', 'deleted')
if m[4] then return {0} end
local epoch = m[1]
if not epoch then
  epoch = ARGV[1]
  redis.call('HSET', meta, 'epoch', epoch)
  redis.call('UNLINK', stream)
end
local head = {1, epoch, m[2] or '0', m[3] or '0-0'}
if ARGV[2] == '0' then return head end
head[5] = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)
head[6] = {}
if ARGV[3] == '' or not m[3] or ARGV[3] == '(' .. m[3] then return head end
local size = 0
for i, entry in ipairs(redis.call('XRANGE', stream, ARGV[3], '+', 'COUNT', ARGV[2])) do
  size = size + #(entry[2][6] or '')
  if i > 1 and size > tonumber(ARGV[4]) then break end
  head[6][i] = entry
end
return head
""")
"""new epoch, count (0: not even the oldest), '(' and the id after which or '', bytes → {0: deleted} | {1, epoch, seq,
last id, [oldest], [entries]}"""

DELETE = Script("""
redis.call('UNLINK', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[2], 'deleted', 1)
redis.call('PEXPIRE', KEYS[2], ARGV[1])
redis.pcall('PUBLISH', ARGV[2], ARGV[3])
return 1
""")
"""how long it is remembered [ms], channel, envelope → 1"""
