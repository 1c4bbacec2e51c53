SET LOCAL ROLE lease_owner;

-- What is guarded, and what is wrong with it. Read by people, by the coordinator and by leasectl; lease.repair_guard puts most of it right.
-- (Functions in a view run with its reader's rights, so only those of pg_catalog are called here, and lease.guard_tree.)

-- One row for each thing that was altered since a table was registered, or that a house should look at.
-- stops_starts: no run can cover rows of the table until it is put right. not_guarded: the table's name is like one of lease.guard_pattern.
CREATE OR REPLACE VIEW lease.guard_findings AS
  WITH guarded AS (   -- those whose table is there, with its key and columns as they are now
    SELECT g.*, c.relname, n.nspname, c.relrowsecurity,
           (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_catalog.pg_attribute a WHERE a.attrelid = g.relation AND a.attnum > 0 AND NOT a.attisdropped) AS names,
           -- Types as lease.key_of names them, which sees no schema but pg_catalog; a reader may see others.
           (SELECT array_agg(a.attname::text || ' ' || CASE WHEN y.typnamespace <> 'pg_catalog'::regnamespace AND pg_type_is_visible(y.oid) THEN y.typnamespace::regnamespace || '.' ELSE '' END
                             || format_type(y.oid, -1) ORDER BY k.n)
              FROM pg_catalog.pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
              JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum JOIN pg_catalog.pg_type y ON y.oid = a.atttypid
             WHERE i.indrelid = g.relation AND i.indisprimary AND k.n <= i.indnkeyatts) AS key
      FROM lease.guarded g JOIN pg_catalog.pg_class c ON c.oid = g.relation JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  ), tree AS (
    SELECT g.type, c.oid, c.oid = g.relation OR c.relispartition AS is_part FROM guarded g CROSS JOIN LATERAL lease.guard_tree(g.relation) AS r JOIN pg_catalog.pg_class c ON c.oid = r
  ), part AS (
    SELECT t.type, t.oid FROM tree t WHERE t.is_part
  ), gone AS MATERIALIZED (        -- guarded columns that are not there under their name, and what is guarded instead
    SELECT g.type, g.relation, c.name,
           (SELECT string_agg(a.attname, ', ')
              FROM pg_catalog.pg_trigger t
              JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_trigger'::regclass AND d.objid = t.oid AND d.refobjid = g.relation AND d.refobjsubid > 0
              JOIN pg_catalog.pg_attribute a ON a.attrelid = g.relation AND a.attnum = d.refobjsubid
             WHERE t.tgrelid = g.relation AND t.tgname = 'lease_guard_columns' AND a.attname <> ALL (g.columns || g.key_columns || 'lease_fence'::text)) AS now
      FROM guarded g CROSS JOIN LATERAL unnest(g.columns) AS c (name) WHERE c.name <> ALL (g.names)
  ), triggers AS (
    SELECT p.type, p.oid, w.name, t.tgenabled
      FROM part p
      CROSS JOIN (VALUES ('lease_guard_edit'), ('lease_guard_stamper'), ('lease_guard_delete'), ('lease_guard_insert'), ('lease_guard_truncate')) AS w (name)
      LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = p.oid AND t.tgname = w.name
    UNION ALL
    SELECT g.type, g.relation, 'lease_guard_editor', t.tgenabled
      FROM guarded g LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = g.relation AND t.tgname = 'lease_guard_editor' WHERE g.takes_edits
  ), finding (type, table_name, code, stops_starts, finding) AS (
    SELECT g.type, format('%I.%I', g.schema_name, g.table_name), 'table_dropped', true, 'the table is gone'
      FROM lease.guarded g WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = g.relation)
    UNION ALL
    SELECT g.type, g.relation::text, 'table_renamed', true, format('it was registered as %I.%I', g.schema_name, g.table_name)
      FROM guarded g WHERE (g.nspname, g.relname) <> (g.schema_name, g.table_name)
    UNION ALL
    SELECT g.type, g.relation::text, 'key_changed', true, format('the primary key is (%s) and was (%s)', array_to_string(g.key, ', '), array_to_string(k.was, ', '))
      FROM guarded g CROSS JOIN LATERAL (SELECT ARRAY(SELECT u.name || ' ' || u.type FROM unnest(g.key_columns, g.key_types) WITH ORDINALITY AS u (name, type, n) ORDER BY u.n)) AS k (was)
     WHERE g.key IS DISTINCT FROM k.was
    UNION ALL
    SELECT t.type, t.oid::regclass::text, 'inherits', true, 'it inherits from a guarded table, and triggers are not passed on' FROM tree t WHERE NOT t.is_part
    UNION ALL
    SELECT c.type, c.relation::text, CASE WHEN c.now IS NULL THEN 'column_dropped' ELSE 'column_renamed' END, false,
           format('the column %I %s', c.name, CASE WHEN c.now IS NULL THEN 'is gone' ELSE 'has another name; guarded is now: ' || c.now END)
      FROM gone c
    UNION ALL
    SELECT g.type, g.relation::text, 'stamp_dropped', true, 'the column lease_fence is gone' FROM guarded g WHERE 'lease_fence' <> ALL (g.names)
    UNION ALL
    SELECT t.type, t.oid::regclass::text,
           CASE WHEN t.tgenabled IS NULL THEN 'trigger_missing' WHEN t.tgenabled = 'D' THEN 'trigger_disabled' ELSE 'trigger_not_always' END, t.name <> 'lease_guard_editor',
           format('the trigger %s %s', t.name, CASE WHEN t.tgenabled IS NULL THEN 'is missing' WHEN t.tgenabled = 'D' THEN 'is disabled' ELSE 'does not fire ALWAYS' END)
      FROM triggers t WHERE t.tgenabled IS DISTINCT FROM 'A'
    UNION ALL
    SELECT p.type, p.oid::regclass::text, 'trigger_missing', true, 'the trigger lease_guard_columns is missing: all columns count as guarded'
      FROM part p WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = p.oid AND t.tgname = 'lease_guard_columns')
    UNION ALL
    SELECT g.type, g.relation::text, 'function_altered', w.owner = 'lease_stamper', format('the function lease_stamp.%I is gone, or not as it was made', g.type || '.' || w.name)
      FROM guarded g CROSS JOIN (VALUES ('stamps', 'lease_stamper'), ('stamp', 'lease_stamper'), ('stamped', 'lease_stamper'), ('blocker', 'lease_stamper'), ('missing', 'lease_stamper'),
                                          ('edit', 'lease_editor')) AS w (name, owner)
     WHERE (w.name <> 'edit' OR g.takes_edits) AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc p
                        WHERE p.pronamespace = 'lease_stamp'::regnamespace AND p.proname = g.type || '.' || w.name AND p.prosecdef AND pg_get_userbyid(p.proowner) = w.owner
                          AND NOT EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE pg_get_userbyid(a.grantee) NOT IN (w.owner, 'lease_owner')))
    UNION ALL
    SELECT g.type, g.relation::text, 'privilege_missing', true, 'lease_stamper may not stamp its rows'
      FROM guarded g JOIN pg_catalog.pg_attribute a ON a.attrelid = g.relation AND a.attname = 'lease_fence' AND NOT a.attisdropped
     WHERE NOT (has_column_privilege('lease_stamper', g.relation, a.attnum, 'UPDATE') AND has_column_privilege('lease_stamper', g.relation, a.attnum, 'SELECT')
                AND has_schema_privilege('lease_stamper', g.nspname, 'USAGE'))
        OR EXISTS (SELECT FROM pg_catalog.pg_attribute k JOIN pg_catalog.pg_type y ON y.oid = k.atttypid
                    WHERE k.attrelid = g.relation AND k.attname = ANY (g.key_columns) AND NOT has_schema_privilege('lease_stamper', y.typnamespace, 'USAGE'))
    UNION ALL
    SELECT g.type, g.relation::text, 'row_security', true, 'row security hides rows from lease_stamper' FROM guarded g WHERE g.relrowsecurity
    UNION ALL
    SELECT NULL, c.oid::regclass::text, 'not_guarded', false, format('its name is like %s: %s', min(p.pattern), min(p.why))
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN lease.guard_pattern p ON c.relname ILIKE p.pattern
     WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
       AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'lease', 'lease_stamp') AND c.oid NOT IN (SELECT g.relation FROM lease.guarded g)
     GROUP BY c.oid
  )
  SELECT f.type, f.table_name, f.code, f.stops_starts, f.finding,
         CASE f.code WHEN 'not_guarded' THEN 'SELECT lease.guard_table(...), or a narrower lease.guard_pattern'
                     WHEN 'row_security' THEN 'ALTER TABLE ... DISABLE ROW LEVEL SECURITY, or unguard it'
                     WHEN 'inherits' THEN format('ALTER TABLE %s NO INHERIT ...', f.table_name)
                     WHEN 'table_dropped' THEN format('SELECT lease.unguard_table(%L)', f.type)
                     ELSE format('SELECT lease.repair_guard(%L)', f.type) END AS remedy
    FROM finding f;

CREATE OR REPLACE VIEW lease.guarded_tables AS
  SELECT g.type, g.label, g.relation::text AS table_name, g.key_columns, g.columns,
         (SELECT count(*) FROM lease.guard_tree(g.relation) AS r JOIN pg_catalog.pg_class c ON c.oid = r WHERE c.relkind = 'r') AS partitions,
         g.registered_at, g.registered_by, f.findings IS NULL AS is_sound, coalesce(f.findings, '{}') AS findings
    FROM lease.guarded g
    LEFT JOIN (SELECT f.type, array_agg(f.code || ': ' || f.table_name || ': ' || f.finding) AS findings FROM lease.guard_findings f GROUP BY f.type) f USING (type);

CREATE OR REPLACE VIEW lease.admitted_edits AS
  SELECT e.fence, l.kind, l.lease, e.type, e.id, e.at, e.by, e.old, e.new FROM lease.admitted_edit e LEFT JOIN lease.lease l USING (fence);

GRANT SELECT ON lease.guard_findings, lease.guarded_tables, lease.admitted_edits TO lease_coordinator, lease_reader;
RESET ROLE;
