-- $1 kind, $2 lease, $3 limit: the last so many, oldest first
SELECT number,
       to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       command,
       event,
       holder,
       fence,
       claim_id,
       to_char(lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       state,
       attempt,
       step,
       concat_ws(' ', reason, field, 'step ' || step, concat_ws(' ', operator ->> 'verdict', 'by ' || (operator ->> 'actor') || ': ' || (operator ->> 'reason')),
                 'held by ' || (blocker ->> 'holder') || ' (' || (blocker ->> 'kind') || '/' || (blocker ->> 'lease') || ')'
                   || coalesce(' on ' || (blocker ->> 'resource'), '')),
       reason,
       field,
       blocker,
       operator,
       source,
       message_id,
       origin_topic || '/' || origin_partition || '@' || origin_offset,
       origin_topic,
       origin_partition,
       origin_offset
  FROM (SELECT *
          FROM lease.timeline
         WHERE kind = $1::text AND subject = $2::text
         ORDER BY number DESC
         LIMIT $3::bigint) AS last
 ORDER BY number
