-- $1 kind, $2 state, $3 condition, $4 holder, $5 lapses within so many ms, $6 limit; null: not asked for
SELECT kind || '/' || lease,
       kind,
       lease,
       state,
       condition,
       holder,
       fence,
       claim_id,
       remaining_ms,
       to_char(lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       attempt,
       step,
       resources_covered,
       to_char(ready_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       CASE WHEN overtaken THEN 'true' ELSE 'false' END,
       to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  FROM lease.leases
 WHERE ($1::text IS NULL OR kind = $1)
   AND ($2::text IS NULL OR state = $2)
   AND ($3::text IS NULL OR condition = $3)
   AND ($4::text IS NULL OR holder = $4)
   AND ($5::text IS NULL OR (condition IN ('held', 'covering') AND remaining_ms <= $5::bigint))
 ORDER BY CASE WHEN $5::text IS NOT NULL THEN lease_until END, kind, lease
 LIMIT $6::bigint
