-- $1 reason, $2 topic, $3 limit: the last so many, oldest first
SELECT number,
       to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       reason,
       detail,
       origin_topic,
       origin_partition,
       origin_offset,
       value_bytes
  FROM (SELECT *
          FROM lease.dead_letters
         WHERE ($1::text IS NULL OR reason = $1) AND ($2::text IS NULL OR origin_topic = $2)
         ORDER BY number DESC
         LIMIT $3::bigint) AS last
 ORDER BY number
