-- $1 kind, $2 lease, $3 limit
SELECT l.kind || '/' || l.lease,
       l.kind,
       l.lease,
       l.state,
       l.condition,
       l.holder,
       l.claim_id,
       l.fence,
       to_char(l.since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       to_char(l.lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       l.remaining_ms,
       l.attempt,
       l.step,
       to_char(l.ready_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       CASE WHEN l.overtaken THEN 'true' ELSE 'false' END,
       to_char(l.ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       l.resources_covered,
       (SELECT string_agg(r.resource, ' ' ORDER BY r.resource)
          FROM (SELECT resource FROM lease.resources WHERE kind = l.kind AND lease = l.lease ORDER BY resource LIMIT 20) AS r),
       (SELECT json_agg(r.resource ORDER BY r.resource)
          FROM (SELECT resource FROM lease.resources WHERE kind = l.kind AND lease = l.lease ORDER BY resource LIMIT 1000) AS r)
  FROM lease.leases AS l
 WHERE l.kind = $1::text AND l.lease = $2::text
 LIMIT $3::bigint
