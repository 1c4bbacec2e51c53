SET LOCAL ROLE lease_owner;

-- What people and programs may read. The coordinator's role and the reader's role see these and no table.

CREATE OR REPLACE VIEW lease.kinds AS
  SELECT kind, mode, ttl_ms, ttl_max_ms, attempts_max, backoff_base_ms, backoff_max_ms, keep_final, summary, covers, finish_after FROM lease.kind;

CREATE OR REPLACE VIEW lease.outcomes AS
  SELECT precedence, outcome, is_refusal, meaning FROM lease.outcome;

CREATE OR REPLACE VIEW lease.transitions AS
  SELECT t.mode, t.condition, t.command, t.fits, t.outcome, t.next_condition
    FROM lease.transition t JOIN lease.condition c USING (condition) JOIN lease.command k USING (command)
   ORDER BY t.mode DESC, k.no, c.no, t.fits;

CREATE OR REPLACE VIEW lease.steps AS
  SELECT kind, step, after FROM lease.step;

-- condition says what the next command will meet, by the clock of now; state what was last written.
CREATE OR REPLACE VIEW lease.leases AS
  SELECT l.kind, l.lease, l.state,
         CASE WHEN l.state <> 'held' THEN l.state
              WHEN l.lease_until IS NULL THEN 'unfenced'
              WHEN l.lease_until <= clock_timestamp() THEN 'lapsed'
              WHEN l.claim_id IS NULL THEN 'unfenced'
              WHEN l.covering IS NOT NULL THEN 'covering'
              ELSE 'held' END AS condition,
         l.holder, l.claim_id, l.fence, l.since, l.lease_until,
         floor(extract(epoch FROM l.lease_until - clock_timestamp()) * 1000)::bigint AS remaining_ms,
         l.attempt, l.step, l.covered AS resources_covered, l.ready_at, l.overtaken, l.ended_at
    FROM lease.lease l;

CREATE OR REPLACE VIEW lease.resources AS
  SELECT r.resource, r.fence, l.kind, l.lease, l.condition, l.holder, l.lease_until, l.remaining_ms,
         coalesce(l.condition IN ('held', 'covering', 'unfenced'), false) AS is_taken
    FROM lease.resource r LEFT JOIN lease.leases l ON l.fence = r.fence;

CREATE OR REPLACE VIEW lease.timeline AS
  SELECT number, at, event, kind, subject, command, source, message_id, traceparent, origin_topic, origin_partition, origin_offset,
         holder, claim_id, fence, since, lease_until, min_fence, state, attempt, step, amount, refresh, reason, field, blocker, original,
         changes_lease, is_grant, previous_number, basis,
         CASE WHEN command = 'resolve' OR event = 'imported' THEN payload::jsonb END AS operator
    FROM lease.journal;

-- What people must look at, with what is known of it. unfenced: in progress under no grant, without an expiry; nothing happens to it by
-- itself. extended: likewise, until lease_until. lapsed: a run whose holder fell silent; nobody has gone on with it.
-- renewed_at: by a command of its own; a renewal of many at once leaves no row. last_*: the newest row that the journal still has.
CREATE OR REPLACE VIEW lease.cases AS
  SELECT l.kind, l.lease,
         CASE WHEN l.condition <> 'unfenced' THEN 'lapsed' WHEN l.lease_until IS NULL THEN 'unfenced' ELSE 'extended' END AS what,
         l.holder, l.since AS claimed_at, l.fence, l.claim_id, l.lease_until, l.remaining_ms, l.attempt, l.step,
         (SELECT j.at FROM lease.journal j
           WHERE j.subject = l.lease AND j.kind = l.kind AND j.event = 'renewed' ORDER BY j.number DESC LIMIT 1) AS renewed_at,
         j.number AS last_number, j.at AS last_at, j.event AS last_event, j.command AS last_command, j.reason AS last_reason,
         CASE WHEN j.command = 'resolve' OR j.event = 'imported' THEN j.payload::jsonb END AS last_operator,
         j.source AS last_source, j.message_id AS last_message_id,
         j.origin_topic AS last_topic, j.origin_partition AS last_partition, j.origin_offset AS last_offset,
         j.number <= coalesce((SELECT p.published FROM lease.relay_progress p ORDER BY p.no DESC LIMIT 1), 0) AS is_published,
         (SELECT x.payload ->> 'path' FROM lease.lease x WHERE x.kind = l.kind AND x.lease = l.lease) AS path
    FROM lease.leases l
    JOIN lease.kind k ON k.kind = l.kind
    LEFT JOIN LATERAL (SELECT * FROM lease.journal j WHERE j.subject = l.lease AND j.kind = l.kind ORDER BY j.number DESC LIMIT 1) j ON true
   WHERE l.condition = 'unfenced'
      OR k.mode = 'run' AND (l.condition = 'lapsed' OR l.state = 'free' AND l.claim_id IS NOT NULL);

CREATE OR REPLACE VIEW lease.dead_letters AS
  SELECT number, at, reason, field AS detail, origin_topic, origin_partition, origin_offset,
         octet_length(raw_key) AS key_bytes, octet_length(raw_value) AS value_bytes, octet_length(raw_headers) AS headers_bytes
    FROM lease.journal WHERE event = 'dead_letter';

CREATE OR REPLACE VIEW lease.demands AS
  SELECT kind, worker, credit_total, granted_total, credit_total - granted_total AS credit_open,
         credit_total > granted_total AND open_until >= clock_timestamp() AS is_open, refresh, ttl_ms, open_until, ticket
    FROM lease.demand;

CREATE OR REPLACE VIEW lease.partitions AS
  SELECT p.topic, p.partition, p.epoch, p.owner, p.taken_at, p.partitions,
         (SELECT c.next_offset FROM lease.consumed c WHERE c.topic = p.topic AND c.partition = p.partition ORDER BY c.next_offset DESC LIMIT 1) AS next_offset
    FROM lease.partition p;

CREATE OR REPLACE VIEW lease.relay_status AS
  SELECT r.epoch, r.owner, r.taken_at, coalesce(p.published, 0) AS published, coalesce(j.number, 0) AS journal_number,
         (SELECT count(*) FROM lease.journal u WHERE u.number > coalesce(p.published, 0)) AS unpublished,
         (SELECT u.at FROM lease.journal u WHERE u.number > coalesce(p.published, 0) ORDER BY u.number LIMIT 1) AS oldest_unpublished_at
    FROM (SELECT * FROM lease.relay ORDER BY epoch DESC LIMIT 1) r
    FULL JOIN (SELECT published FROM lease.relay_progress ORDER BY no DESC LIMIT 1) p ON true
    FULL JOIN (SELECT number FROM lease.journal ORDER BY number DESC LIMIT 1) j ON true;

CREATE OR REPLACE VIEW lease.settings AS
  SELECT schema_version, dedup_slot, dedup_switched_at, dedup_window, journal_rows, journal_keep, demand_keep, clock_back_max FROM lease.setting;

CREATE OR REPLACE VIEW lease.server_identity AS
  SELECT system_identifier, timeline, jumped_at FROM lease.identity;

CREATE OR REPLACE VIEW lease.line AS
  SELECT row_number() OVER (ORDER BY ticket) AS place, kind, lease, holder, cardinality(resources) AS resources, asked_at, open_until, refresh,
         (SELECT l.kind || '/' || l.lease FROM lease.lease l WHERE l.fence = w.blocked_by) AS held_by,
         (SELECT x.kind || '/' || x.lease FROM lease.waiter x WHERE x.ticket = w.behind) AS behind, retry_at, tries,
         w.resources || ARRAY(SELECT t || '/*' FROM unnest(w.tables) t) AS names
    FROM lease.waiter w WHERE open_until >= clock_timestamp();
COMMENT ON VIEW lease.line IS 'Starts that wait, in the order in which they are served; held_by and behind: what was in the way at the last try.';

CREATE OR REPLACE VIEW lease.parked_edits AS
  SELECT no, type, id, editor, old, new, source, message_id, asked_at, expires_at, tries, retry_at,
         (SELECT l.kind || '/' || l.lease FROM lease.lease l WHERE l.fence = e.blocked_by) AS held_by
    FROM lease.parked_edit e;
COMMENT ON VIEW lease.parked_edits IS 'Edits that wait for the end of a lease; those of a row are made in the order of no.';

CREATE OR REPLACE VIEW lease.guard_exceptions AS
  SELECT no, type, ids, login, why, valid_until, granted_by, granted_at, ended_by, ended_at, ended_at IS NULL AND valid_until > clock_timestamp() AS is_valid
    FROM lease.guard_exception;
COMMENT ON VIEW lease.guard_exceptions IS 'Who may, or might, edit guarded rows under live leases.';

GRANT SELECT ON lease.kinds, lease.outcomes, lease.transitions, lease.steps, lease.leases, lease.resources, lease.timeline, lease.cases, lease.dead_letters,
  lease.demands, lease.line, lease.parked_edits, lease.guard_exceptions, lease.partitions, lease.relay_status, lease.settings, lease.server_identity TO lease_coordinator, lease_reader;
RESET ROLE;
