-- $1 type, $2 id, $3 limit; null: not asked for.
SELECT no,
       type || '/' || id,
       type,
       id,
       editor,
       (SELECT string_agg(format('%s=%s (was %s)', n.key, coalesce(n.value, 'NULL'), coalesce(old ->> n.key, 'NULL')), ', ' ORDER BY n.key) FROM jsonb_each_text(new) AS n),
       old,
       new,
       held_by,
       source,
       message_id,
       to_char(asked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint,
       tries
  FROM lease.parked_edits
 WHERE ($1::text IS NULL OR type = $1)
   AND ($2::text IS NULL OR id = $2)
 ORDER BY no
 LIMIT $3::bigint
