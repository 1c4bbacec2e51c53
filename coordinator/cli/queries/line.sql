-- $1 kind, $2 resource, $3 limit; null: not asked for.
SELECT place,
       kind || '/' || lease,
       kind,
       lease,
       holder,
       resources,
       coalesce(held_by, behind, 'a row that somebody has locked'),
       held_by,
       behind,
       to_char(asked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       to_char(open_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       (extract(epoch FROM open_until - clock_timestamp()) * 1000)::bigint,
       tries
  FROM lease.line
 WHERE ($1::text IS NULL OR kind = $1)
   AND ($2::text IS NULL OR $2 = ANY (names))
 ORDER BY place
 LIMIT $3::bigint
