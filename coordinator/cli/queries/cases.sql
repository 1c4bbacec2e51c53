-- $1 kind, $2 lease, $3 limit; null: not asked for. The file and the topics are looked at by leasectl.
SELECT kind || '/' || lease,
       kind,
       lease,
       what,
       holder,
       to_char(claimed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       fence,
       claim_id,
       to_char(renewed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       to_char(lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       remaining_ms,
       attempt,
       step,
       concat_ws(' ', last_event, last_operator ->> 'verdict', 'by ' || (last_operator ->> 'actor') || ':', coalesce(last_operator ->> 'reason', last_reason)),
       last_number,
       last_event,
       to_char(last_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       last_operator,
       last_topic || '/' || last_partition || '@' || last_offset,
       CASE WHEN last_source IS NOT NULL
            THEN json_build_object('source', last_source, 'id', last_message_id, 'topic', last_topic, 'partition', last_partition, 'offset', last_offset) END,
       CASE WHEN is_published THEN 'true' WHEN NOT is_published THEN 'false' END,
       path,
       NULL,
       NULL
  FROM lease.cases
 WHERE ($1::text IS NULL OR kind = $1)
   AND ($2::text IS NULL OR lease = $2)
 ORDER BY claimed_at, kind, lease
 LIMIT $3::bigint
