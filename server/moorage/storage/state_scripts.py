"""The Lua of :class:`~moorage.storage.state_redis.RedisState`: each is one atomic step over one account's
keys.

Keys, all with the account as hash tag, none with an expiry (``P`` is ``moorage:state:{<account>}``):
``P:seq`` number of the newest session · ``P:tags`` tag → id · ``P:sessions`` ids by seq · ``P:session:<id>``
the session · ``…:messages`` seq → message as JSON · ``…:local`` localId → seq · ``…:update`` seq → number of
its update. Every script gets ``P`` as its one key: the others are in the same slot, since they share its
hash tag.
"""

from __future__ import annotations

CREATE = """
local P, tag, id = KEYS[1], ARGV[1], ARGV[2]
local known = redis.call('HGET', P .. ':tags', tag)
if known then return {0, known, redis.call('HGETALL', P .. ':session:' .. known)} end
local seq = redis.call('INCR', P .. ':seq')
local key = P .. ':session:' .. id
redis.call('HSET', key, 'tag', tag, 'seq', seq, 'metadata', ARGV[3], 'active', 1, 'activeAt', 0,
           'createdAt', ARGV[4], 'updatedAt', ARGV[4])
redis.call('ZADD', P .. ':sessions', seq, id)
redis.call('HSET', P .. ':tags', tag, id)
return {1, id, redis.call('HGETALL', key)}
"""
"""tag, id for a new one, metadata, now → {created, id, fields}"""

LIST = """
local P, found = KEYS[1], {}
for i, id in ipairs(redis.call('ZREVRANGE', P .. ':sessions', 0, -1)) do
  found[i] = {id, redis.call('HGETALL', P .. ':session:' .. id)}
end
return found
"""
"""→ {{id, fields}, …} newest first"""

GET = """
return redis.call('HGETALL', KEYS[1] .. ':session:' .. ARGV[1])
"""
"""id → fields, empty: unknown"""

SET_ACTIVE = """
local key = KEYS[1] .. ':session:' .. ARGV[1]
local last = redis.call('HGET', key, 'activeAt')
if not last or tonumber(ARGV[3]) < tonumber(last) then return 0 end
redis.call('HSET', key, 'active', ARGV[2], 'activeAt', ARGV[3], 'updatedAt', ARGV[4])
return 1
"""
"""id, 0 or 1, at, now → 1: stored"""

DELETE = """
local P, id = KEYS[1], ARGV[1]
local key = P .. ':session:' .. id
local tag = redis.call('HGET', key, 'tag')
if not tag then return 0 end
redis.call('HDEL', P .. ':tags', tag)
redis.call('ZREM', P .. ':sessions', id)
redis.call('UNLINK', key, key .. ':messages', key .. ':local', key .. ':update')
return 1
"""
"""id → 1: removed"""

ADD_MESSAGE = """
local key = KEYS[1] .. ':session:' .. ARGV[1]
if redis.call('EXISTS', key) == 0 then return {-1} end
if ARGV[2] == '1' then
  local seq = redis.call('HGET', key .. ':local', ARGV[3])
  if seq then
    return {0, redis.call('HGET', key .. ':messages', seq), redis.call('HGET', key .. ':update', seq)}
  end
end
local seq = redis.call('HLEN', key .. ':messages') + 1
local message = ARGV[4] .. string.format('%.0f', seq) .. ARGV[5]
redis.call('HSET', key .. ':messages', seq, message)
redis.call('HSET', key, 'updatedAt', ARGV[6])
if ARGV[2] == '1' then redis.call('HSET', key .. ':local', ARGV[3], seq) end
return {1, message}
"""
"""session, has a localId, localId, JSON before seq, JSON after it, now → {-1} | {created, message, update
seq?}"""

SET_UPDATE_SEQ = """
local key = KEYS[1] .. ':session:' .. ARGV[1]
if redis.call('EXISTS', key) == 1 then redis.call('HSET', key .. ':update', ARGV[2], ARGV[3]) end
return 1
"""
"""session, message seq, update seq"""

LIST_MESSAGES = """
local key = KEYS[1] .. ':session:' .. ARGV[1]
if redis.call('EXISTS', key) == 0 then return {-1} end
local last = redis.call('HLEN', key .. ':messages')
local seq, stop = tonumber(ARGV[2]), math.min(tonumber(ARGV[2]) + tonumber(ARGV[3]), last)
local page, size = {}, 0
while seq < stop do
  local message = redis.call('HGET', key .. ':messages', string.format('%.0f', seq + 1))
  size = size + #message
  if #page > 0 and size > tonumber(ARGV[4]) then break end
  seq = seq + 1
  page[#page + 1] = message
end
return {seq < last and 1 or 0, page}
"""
"""session, after, limit, bytes → {-1} | {more, messages}"""
