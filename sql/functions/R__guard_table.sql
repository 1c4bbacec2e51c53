SET LOCAL ROLE lease_owner;

-- Putting the guard on a user's table, and taking it away.
--
-- These functions run with the caller's rights (he owns the table): no DDL on a stranger's table ever runs with ours. What a table gets:
-- the column lease_fence, triggers on it and on each of its partitions, column privileges for lease_stamper, five functions
-- in the schema lease_stamp, and a row in lease.guarded.

-- Every relation that holds rows of a guarded table or passes them on: itself and all of its partitions; and what inherits from it, though it should not.
-- (Not by pg_partition_tree: that locks the tables, and looks to the planner as if there were a thousand of each.) Views call it with their reader's
-- rights and search_path: it needs none of the first, and names everything in full.
CREATE OR REPLACE FUNCTION lease.guard_tree(p_relation regclass) RETURNS SETOF regclass
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE tree AS (
    SELECT p_relation::pg_catalog.oid AS oid
    UNION ALL SELECT h.inhrelid FROM tree t JOIN pg_catalog.pg_inherits h ON h.inhparent OPERATOR(pg_catalog.=) t.oid)
  SELECT t.oid::pg_catalog.regclass FROM tree t
$$;
GRANT EXECUTE ON FUNCTION lease.guard_tree TO lease_coordinator, lease_reader;

CREATE OR REPLACE FUNCTION lease.refuse_guard(p_why text, p_hint text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'LE020', MESSAGE = p_why, HINT = p_hint;
END
$$;

-- The columns of the primary key in its order, each with its type (in full, without a length), and the operator that its index compares with.
-- is_exact: values that are equal are the same to the byte, as the server itself decides it for its indexes. schemas: where type and operator are.
DROP FUNCTION IF EXISTS lease.key_of(regclass);
CREATE FUNCTION lease.key_of(p_relation regclass) RETURNS TABLE (name text, type text, equals text, is_exact boolean, schemas regnamespace[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT a.attname, format_type(a.atttypid, -1), format('OPERATOR(%I.%s)', n.nspname, o.oprname),
         coalesce((SELECT l.collisdeterministic FROM pg_collation l WHERE l.oid = a.attcollation), true)
         AND EXISTS (SELECT FROM pg_amproc f WHERE f.amprocfamily = c.opcfamily AND f.amproclefttype = c.opcintype AND f.amprocrighttype = c.opcintype AND f.amprocnum = 4),
         ARRAY[(SELECT y.typnamespace FROM pg_type y WHERE y.oid = a.atttypid), o.oprnamespace]::regnamespace[]
    FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indclass::oid[]) WITH ORDINALITY AS k (attnum, class, n)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    JOIN pg_opclass c ON c.oid = k.class
    JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype AND m.amopstrategy = 3
    JOIN pg_operator o ON o.oid = m.amopopr
    JOIN pg_namespace n ON n.oid = o.oprnamespace
   WHERE i.indrelid = p_relation AND i.indisprimary AND k.n <= i.indnkeyatts
   ORDER BY k.n
$$;

CREATE OR REPLACE FUNCTION lease.refuse_children(p_relation regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM lease.refuse_guard(format('%s inherits from %s', r, p_relation),
                             format('Partitions can be guarded, inheritance cannot: triggers are not passed on. First: ALTER TABLE %s NO INHERIT %s', r, p_relation))
    FROM lease.guard_tree(p_relation) r JOIN pg_class c ON c.oid = r WHERE r <> p_relation AND NOT c.relispartition;
END
$$;

-- Raises LE020 while rows of this type have a place for their stamps elsewhere: two live leases would stand over one name, each in its place.
CREATE OR REPLACE FUNCTION lease.refuse_covered_type(p_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM lease.refuse_guard(format('items of the kind %s cover the type %s', k.kind, p_type), 'Guard the table as another type.')
    FROM lease.kind k WHERE k.covers = p_type;
  PERFORM lease.refuse_guard(format('%s is covered by %s %s, which knows nothing of a table', x.resource, l.kind, l.lease),
                             format('Guard the table when that has ended, or as another type. More: leasectl show %s/%s', l.kind, l.lease))
    FROM lease.resource x JOIN lease.lease l ON l.fence = x.fence
   WHERE x.resource >= p_type || '/' AND x.resource < p_type || '0'   -- the character behind '/'
     AND (l.state = 'held' OR l.state IN ('free', 'ready') AND l.claim_id IS NOT NULL AND NOT l.overtaken);
END
$$;

-- Raises LE020, with what to do instead, unless the table can be guarded.
CREATE OR REPLACE FUNCTION lease.assert_guardable(p_table regclass, p_type text, p_columns text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record;
  v_name constant text := p_table::text;
BEGIN
  SELECT c.*, n.nspname INTO t FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_table;
  IF t IS NULL THEN
    PERFORM lease.refuse_guard('there is no such table', 'Name a table that is there.');
  END IF;
  IF coalesce(p_type !~ '^[a-z][a-z0-9_-]{0,31}$', true) THEN
    PERFORM lease.refuse_guard(format('%L is no name for a type of resource', p_type), 'A letter, then at most 31 of a-z, 0-9, _ and -; for example: album-contract');
  END IF;
  IF t.relkind NOT IN ('r', 'p') THEN
    PERFORM lease.refuse_guard(format('%s is %s', v_name, CASE t.relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table' ELSE 'no table' END),
      CASE t.relkind WHEN 'v' THEN 'Guard the table below it: edits through the view are then guarded too.'
                     WHEN 'f' THEN 'Guard it on the server where its rows are.' ELSE 'Only tables can be guarded.' END);
  END IF;
  IF t.relpersistence = 't' THEN
    PERFORM lease.refuse_guard(format('%s is a temporary table', v_name), 'Nobody else sees its rows: there is nothing to guard.');
  END IF;
  IF t.nspname IN ('pg_catalog', 'information_schema', 'lease', 'lease_stamp') THEN
    PERFORM lease.refuse_guard(format('%s is not yours', v_name), 'Guard tables of your own.');
  END IF;
  IF t.relispartition THEN
    PERFORM lease.refuse_guard(format('%s is a partition', v_name), format('Guard the whole table: %s', pg_partition_root(p_table)));
  END IF;
  IF EXISTS (SELECT FROM lease.guard_tree(p_table) r JOIN pg_class c ON c.oid = r WHERE c.relkind = 'f') THEN
    PERFORM lease.refuse_guard(format('%s has a partition that is a foreign table', v_name), 'Its rows are on another server, where no lease of this one is seen.');
  END IF;
  PERFORM lease.refuse_children(p_table);
  IF t.reloftype <> 0 THEN
    PERFORM lease.refuse_guard(format('%s is a table of a type', v_name), 'It can get no column; ALTER TABLE ... NOT OF makes it an ordinary one.');
  END IF;
  IF t.relrowsecurity THEN
    PERFORM lease.refuse_guard(format('%s has row security', v_name), 'It would hide rows from the role that stamps them.');
  END IF;
  IF NOT EXISTS (SELECT FROM lease.key_of(p_table)) THEN
    PERFORM lease.refuse_guard(format('%s has no primary key', v_name), 'A row is named by its key: ALTER TABLE ... ADD PRIMARY KEY (...).');
  END IF;
  IF coalesce(cardinality(p_columns), 0) = 0 OR array_position(p_columns, NULL) IS NOT NULL THEN
    PERFORM lease.refuse_guard('no columns to guard', 'Name those that must not change while a lease covers the row.');
  END IF;
  IF (SELECT count(DISTINCT c) FROM unnest(p_columns) c) < cardinality(p_columns) THEN
    PERFORM lease.refuse_guard('a column is named twice', 'Name each column once.');
  END IF;
  PERFORM lease.refuse_guard(format('%s has no column %I', v_name, c), 'Columns are named as the catalogue has them, without quotes.')
    FROM unnest(p_columns) c
   WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = p_table AND a.attname = c AND a.attnum > 0 AND NOT a.attisdropped);
  PERFORM lease.refuse_guard(format('%s is guarded already, as %s', v_name, g.type), format('To guard other columns: SELECT lease.unguard_table(%L), then guard it anew.', g.type))
    FROM lease.guarded g WHERE g.relation = p_table;
  PERFORM lease.refuse_guard(format('the type %s is that of %s', p_type, g.relation), 'A type is one table.')
    FROM lease.guarded g WHERE g.type = p_type;
  PERFORM lease.refuse_covered_type(p_type);
  IF EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = p_table AND a.attname = 'lease_fence' AND NOT a.attisdropped) THEN
    PERFORM lease.refuse_guard(format('%s has a column lease_fence', v_name), 'The guard brings its own. If it is left over from an older guard, drop it first.');
  END IF;
END
$$;

-- The triggers, each in its place. AFTER, comparing values: a user's BEFORE trigger may change what ours would have seen. Most rows are sorted
-- out by WHEN, without a call; it is kept short, because the server reads its text anew for every statement (with the guarded columns in
-- it, an UPDATE of one row cost twice as much). All are ENABLE ALWAYS but the last one.
--   lease_guard_edit    an update of a row that carries a stamp or is given one, whatever it changes, but for lease_stamper's change of the stamp
--   lease_guard_stamper   once for each statement of lease_stamper's that sets stamps: is it the start that it should be? (He may update no other
--                       column; through somebody's view he might, but then the stamp stays, and lease_guard_edit looks.)
--   lease_guard_delete, lease_guard_insert   of a row with a stamp; also the two halves of a move to another partition
--   lease_guard_truncate   on every partition, since a TRUNCATE of one fires no other's; so is lease_guard_stamper
--   lease_guard_columns    never fires: the server keeps its list of columns, key and guarded ones, through renames and dumps
CREATE OR REPLACE FUNCTION lease.make_guard_triggers(p_relation regclass, p_columns text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
  v_part regclass; v_trigger text;
BEGIN
  EXECUTE format('CREATE TRIGGER lease_guard_edit AFTER UPDATE ON %s FOR EACH ROW WHEN ((OLD.lease_fence IS NOT NULL OR NEW.lease_fence IS NOT NULL) '
    'AND (CURRENT_USER <> ''lease_stamper'' OR OLD.lease_fence = NEW.lease_fence)) EXECUTE FUNCTION lease.guard_row()', p_relation);
  EXECUTE format('CREATE TRIGGER lease_guard_delete AFTER DELETE ON %s FOR EACH ROW WHEN (OLD.lease_fence IS NOT NULL) EXECUTE FUNCTION lease.guard_row()', p_relation);
  EXECUTE format('CREATE TRIGGER lease_guard_insert AFTER INSERT ON %s FOR EACH ROW WHEN (NEW.lease_fence IS NOT NULL) EXECUTE FUNCTION lease.guard_row()', p_relation);
  EXECUTE format('CREATE TRIGGER lease_guard_columns AFTER UPDATE OF %s ON %s FOR EACH ROW EXECUTE FUNCTION lease.guard_columns()',
                 (SELECT string_agg(format('%I', c), ', ') FROM (SELECT k.name AS c FROM lease.key_of(p_relation) k UNION SELECT unnest(p_columns) ORDER BY 1) q), p_relation);
  FOR v_part IN SELECT lease.guard_tree(p_relation) LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS lease_guard_truncate ON %s', v_part);
    EXECUTE format('CREATE TRIGGER lease_guard_truncate BEFORE TRUNCATE ON %s EXECUTE FUNCTION lease.guard_truncate()', v_part);
    EXECUTE format('DROP TRIGGER IF EXISTS lease_guard_stamper ON %s', v_part);
    EXECUTE format('CREATE TRIGGER lease_guard_stamper BEFORE UPDATE OF lease_fence ON %s WHEN (CURRENT_USER = ''lease_stamper'') EXECUTE FUNCTION lease.guard_stamper()', v_part);
    FOREACH v_trigger IN ARRAY ARRAY['edit', 'stamper', 'delete', 'insert', 'truncate'] LOOP
      EXECUTE format('ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER lease_guard_%s', v_part, v_trigger);
    END LOOP;
    EXECUTE format('ALTER TABLE ONLY %s DISABLE TRIGGER lease_guard_columns', v_part);
  END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION lease.drop_guard_triggers(p_relation regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
  v_part regclass; v_trigger text;
BEGIN
  FOREACH v_trigger IN ARRAY ARRAY['edit', 'stamp', 'delete', 'insert', 'columns'] LOOP   -- stamp: of tables guarded before there was lease_guard_stamper
    EXECUTE format('DROP TRIGGER IF EXISTS lease_guard_%s ON %s', v_trigger, p_relation);
  END LOOP;
  FOR v_part IN SELECT lease.guard_tree(p_relation) LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS lease_guard_truncate ON %s', v_part);
    EXECUTE format('DROP TRIGGER IF EXISTS lease_guard_stamper ON %s', v_part);
  END LOOP;
END
$$;

-- Of the key of a table, for the texts of its functions: keys, the declarations of one array for each column; tables, what stands in a list of tables, and
-- is_in, how a row t is found in it by those arrays; id, the id of a row t; spelled, the ids as the types of the key spell them.
-- is_exact: keys that are equal are spelled alike (not so: numeric, float, a collation that ignores case).
CREATE OR REPLACE FUNCTION lease.key_texts(p_relation regclass, OUT keys text, OUT tables text, OUT is_in text, OUT id text, OUT spelled text, OUT is_exact boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  WITH k AS (
    SELECT q.*, row_number() OVER () AS n, count(*) OVER () AS of,
           EXISTS (SELECT FROM pg_cast c WHERE c.castsource = q.type::regtype AND c.casttarget = 'text'::regtype AND c.castmethod = 'f') AS has_cast
      FROM lease.key_of(p_relation) q),
  -- A key of one column is looked up at once; of several, or through partitions (which a list does not sort out), one after the other.
  how AS (SELECT c.relkind = 'r' AND (SELECT count(*) = 1 FROM k) AS at_once, format('%I.%I', n.nspname, c.relname) AS name
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_relation),
  names AS (SELECT string_agg('k' || n, ', ' ORDER BY n) AS list FROM k)
  SELECT string_agg(CASE WHEN k.of = 1 THEN format('  k1 constant %s[] := p_ids::%s[];', k.type, k.type)
                         ELSE format('  k%s constant %s[] := ARRAY(SELECT split_part(i, '':'', %s) FROM unnest(p_ids) WITH ORDINALITY AS u (i, n) ORDER BY n)::%s[];', k.n, k.type, k.n, k.type)
                    END, E'\n' ORDER BY k.n),
         CASE WHEN at_once THEN how.name ELSE format('unnest(%s) AS k (%s), %s', names.list, names.list, how.name) END,
         string_agg(format(CASE WHEN at_once THEN 't.%I %s ANY (k1)' ELSE 't.%I %s k.k%s' END, k.name, k.equals, k.n), ' AND ' ORDER BY k.n),
         format('concat_ws('':'', %s) COLLATE "C"', string_agg(CASE WHEN k.type = 'bpchar' THEN format('rtrim(t.%I::text)', k.name) ELSE format('t.%I', k.name) END, ', ' ORDER BY k.n)),
         -- A type without a cast of its own to text is cast by its output function.
         CASE WHEN count(*) = 1 AND NOT bool_or(k.has_cast) THEN 'k1::text[]'
              ELSE format('ARRAY(SELECT concat_ws('':'', %s) FROM unnest(%s) WITH ORDINALITY AS u (%s, n) ORDER BY n)', string_agg('u.k' || k.n, ', ' ORDER BY k.n), names.list, names.list) END,
         bool_and(k.is_exact)
    FROM k, how, names GROUP BY how.at_once, how.name, names.list
$$;

-- The functions of one table, made anew; their text names the table, so that each has one plan by key and builds nothing from data.
-- They belong to lease_stamper and run with its rights: what a stamp fires in the table is a stranger's code, and so may be the types of its key.
-- Ids are those of the table's key in its own spelling ('7', never '007'): any other one raises 22P02, as one of the wrong type does.
--   stamps(ids)              the stamps on these rows
--   stamp(fence, ids, dead)  sets the stamp where there is none or one of the dead ones, in one conditional UPDATE; how many rows carry it
--                            then under one of these names. LE012 unless the guard is in place. Deferred constraints and triggers are run at once, in here
--   stamped(fence, ids)      how many of the rows carry this stamp; blocker: the least id among them
--   missing(ids)             the least of these ids that has no row
CREATE OR REPLACE FUNCTION lease.make_stamp_functions(p_relation regclass, p_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record; f record;
  v_from text;
BEGIN
  SELECT * INTO t FROM lease.key_texts(p_relation);
  v_from := format('FROM %s AS t WHERE %s', t.tables, t.is_in);
  FOR f IN
    SELECT * FROM (VALUES
      ('stamps', 'p_ids text[]', 'bigint[]', format('v_result := (SELECT array_agg(DISTINCT t.lease_fence) %s AND t.lease_fence IS NOT NULL);', v_from)),
      ('stamped', 'p_fence bigint, p_ids text[]', 'bigint', format('v_result := (SELECT count(*) %s AND t.lease_fence = p_fence);', v_from)),
      ('blocker', 'p_fence bigint, p_ids text[]', 'text', format('v_result := (SELECT min(%s) %s AND t.lease_fence = p_fence);', t.id, v_from)),
      ('missing', 'p_ids text[]', 'text', format('v_result := (SELECT min(i COLLATE "C") FROM unnest(p_ids) AS i WHERE i NOT IN (SELECT %s %s));', t.id, v_from)),
      ('stamp', 'p_fence bigint, p_ids text[], p_dead bigint[]', 'bigint', lease.text_of_stamp(p_relation, p_type))
      ) AS v (name, arguments, result, body)
  LOOP
    EXECUTE format($text$
CREATE FUNCTION lease_stamp.%I(%s) RETURNS %s LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres' SET extra_float_digits = 1
SET bytea_output = 'hex' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $body$
DECLARE
  v_settings constant text[] := lease.settings_as('lease_stamper');
%s
  v_result %s;
BEGIN
  %s
  PERFORM lease.assert_settings_kept(v_settings);
  RETURN v_result;
END
$body$ $text$, p_type || '.' || f.name, f.arguments, f.result, t.keys, f.result, f.body);
    EXECUTE format('REVOKE ALL ON FUNCTION lease_stamp.%I FROM PUBLIC', p_type || '.' || f.name);
    EXECUTE format('GRANT EXECUTE ON FUNCTION lease_stamp.%I TO lease_owner', p_type || '.' || f.name);
    -- A new owner must be allowed to create in the schema, for this moment.
    GRANT CREATE ON SCHEMA lease_stamp TO lease_stamper;
    EXECUTE format('ALTER FUNCTION lease_stamp.%I OWNER TO lease_stamper', p_type || '.' || f.name);
    REVOKE CREATE ON SCHEMA lease_stamp FROM lease_stamper;
  END LOOP;
END
$$;

-- What stamps: the body of lease_stamp."<type>.stamp". Who stamps must have named the row as everybody else does; who only looks has done no harm.
-- Where keys that are equal may be spelled in several ways, a row counts only under the name that it has itself.
CREATE OR REPLACE FUNCTION lease.text_of_stamp(p_relation regclass, p_type text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  t record;
  v_table constant text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_relation);
  v_others text;
BEGIN
  SELECT * INTO t FROM lease.key_texts(p_relation);
  v_others := nullif(left(t.tables, -length(v_table)), '');
  RETURN format($text$IF %s <> p_ids THEN
    RAISE EXCEPTION 'an id is not spelled as the table spells it' USING ERRCODE = 'invalid_text_representation';
  END IF;
  PERFORM lease.assert_guard(%L);
  SET CONSTRAINTS ALL IMMEDIATE;
  PERFORM lease.assert_settings_kept(v_settings);
  WITH stamped AS (UPDATE %s AS t SET lease_fence = p_fence%s
                    WHERE %s AND (t.lease_fence IS NULL OR t.lease_fence = ANY (p_dead)) RETURNING t.lease_fence%s)
  SELECT count(*) INTO v_result FROM stamped WHERE lease_fence = p_fence%s;
  SET CONSTRAINTS ALL IMMEDIATE;$text$,
    t.spelled, p_type, v_table, ' FROM ' || rtrim(v_others, ', '), t.is_in,
    CASE WHEN NOT t.is_exact THEN format(', %s AS id', t.id) END,
    CASE WHEN NOT t.is_exact THEN ' AND (id IN (SELECT unnest(p_ids))) IS TRUE' END);   -- by a hash: a join of the planner's choice may compare each with each
END
$$;

CREATE OR REPLACE FUNCTION lease.drop_stamp_functions(p_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  f record;
BEGIN
  FOR f IN SELECT p.oid::regprocedure AS name FROM pg_proc p WHERE p.pronamespace = 'lease_stamp'::regnamespace AND p.proname LIKE replace(p_type, '_', '\_') || '.%' LOOP
    EXECUTE format('DROP FUNCTION %s', f.name);
  END LOOP;
END
$$;

-- The schemas that lease_stamper has to use: the table's, and those of the types of its key and of their operators.
CREATE OR REPLACE FUNCTION lease.stamping_schemas(p_relation regclass) RETURNS SETOF regnamespace
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT c.relnamespace::regnamespace FROM pg_class c WHERE c.oid = p_relation
  UNION SELECT s FROM lease.key_of(p_relation) k CROSS JOIN LATERAL unnest(k.schemas) s WHERE s <> 'pg_catalog'::regnamespace
$$;

-- What lease_stamper needs on the table, and nothing more.
CREATE OR REPLACE FUNCTION lease.grant_stamping(p_relation regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_schema regnamespace;
BEGIN
  EXECUTE format('GRANT SELECT (%s, lease_fence), UPDATE (lease_fence) ON TABLE %s TO lease_stamper',
                 (SELECT string_agg(format('%I', k.name), ', ') FROM lease.key_of(p_relation) k), p_relation);
  FOR v_schema IN SELECT lease.stamping_schemas(p_relation) LOOP
    CONTINUE WHEN has_schema_privilege('lease_stamper', v_schema, 'USAGE');
    EXECUTE format('GRANT USAGE ON SCHEMA %s TO lease_stamper', v_schema);
    IF NOT has_schema_privilege('lease_stamper', v_schema, 'USAGE') THEN
      PERFORM lease.refuse_guard(format('the schema %s is not yours', v_schema), format('Have its owner do this first: GRANT USAGE ON SCHEMA %s TO lease_stamper', v_schema));
    END IF;
  END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION lease.assert_registrar() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT (pg_has_role(current_user, 'lease_owner', 'USAGE') AND pg_has_role(current_user, 'lease_stamper', 'MEMBER')) THEN
    RAISE EXCEPTION 'only who manages leases may guard tables' USING ERRCODE = 'insufficient_privilege',
      HINT = format('GRANT lease_owner, lease_stamper TO %I', current_user);
  END IF;
  PERFORM pg_advisory_xact_lock(1279611205, 6);
END
$$;

-- lease.guard_table: registers a table of yours for a type of resource. Its rows are the resources <type>/<id>.
--
-- p_columns: what must not change while a lease covers the row; the key never may. p_label: what people call such a row ('album contract').
-- The caller owns the table and is a member of lease_owner and lease_stamper. Readers of lease.guarded_tables see what became of it.
-- Afterwards `INSERT INTO t VALUES ...`, `SELECT *` and `COPY t` without a list of columns meet the new column lease_fence at the end.
-- Locks: the table and its partitions, ACCESS EXCLUSIVE, to the end of the transaction (no row is rewritten); an advisory lock among registrars.
-- Errors: LE020 with a hint for what cannot be guarded; 42501 for who may not.
CREATE OR REPLACE FUNCTION lease.guard_table(p_table regclass, p_type text, p_columns text[], p_label text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_triggers text;
BEGIN
  PERFORM lease.assert_registrar();
  PERFORM lease.assert_guardable(p_table, p_type, p_columns);
  EXECUTE format('ALTER TABLE %s ADD COLUMN lease_fence bigint', p_table);
  EXECUTE format('COMMENT ON COLUMN %s.lease_fence IS %L', p_table, 'stamp of the lease that covers this row; set by leases alone (lease.guarded_tables)');
  PERFORM lease.make_guard_triggers(p_table, p_columns);
  PERFORM lease.grant_stamping(p_table);
  PERFORM lease.make_stamp_functions(p_table, p_type);
  INSERT INTO lease.guarded (type, relation, schema_name, table_name, key_columns, key_types, columns, label)
  SELECT p_type, p_table, n.nspname, c.relname, k.names, k.types, p_columns, coalesce(p_label, replace(p_type, '-', ' '))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, (SELECT array_agg(q.name), array_agg(q.type) FROM lease.key_of(p_table) q) AS k (names, types)
   WHERE c.oid = p_table;
  ANALYZE lease.guarded;   -- so few rows are never analyzed by themselves, and the views' plans would be made for hundreds
  -- A stamp is an UPDATE, by a role that may do nothing else: the table's own triggers should know.
  SELECT string_agg(t.tgname, ', ') INTO v_triggers
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
   WHERE t.tgrelid = p_table AND NOT t.tgisinternal AND t.tgname NOT LIKE 'lease\_guard\_%' AND t.tgtype & 16 <> 0 AND t.tgattr::text = '' AND NOT p.prosecdef;
  IF v_triggers IS NOT NULL THEN
    RAISE NOTICE 'stamping will fire triggers of this table with the rights of lease_stamper: %', v_triggers
      USING HINT = 'If one needs more, make its function SECURITY DEFINER, or fire it for its own columns only (UPDATE OF ...).';
  END IF;
END
$$;

-- lease.unguard_table: takes the guard away and leaves the table as it was before.
-- Refused with LE021 while a live lease covers one of its rows; LE020 for a type that is none. Locks: as lease.guard_table.
CREATE OR REPLACE FUNCTION lease.unguard_table(p_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g lease.guarded; l record; v_schema regnamespace;
  v_live bigint[]; v_stamp bigint; v_schemas regnamespace[];
BEGIN
  PERFORM lease.assert_registrar();
  PERFORM lease.refuse_edits(p_type);
  DELETE FROM lease.guarded x WHERE x.type = p_type RETURNING * INTO g;
  IF NOT FOUND THEN
    PERFORM lease.refuse_guard(format('no table is guarded as %s', coalesce(p_type, 'NULL')), 'SELECT * FROM lease.guarded_tables shows those that are.');
  END IF;
  -- Whoever guards another table under this name is to make his own exceptions.
  UPDATE lease.guard_exception x SET ended_at = clock_timestamp(), ended_by = session_user WHERE x.type = p_type AND x.ended_at IS NULL AND x.valid_until > clock_timestamp();
  PERFORM lease.drop_stamp_functions(p_type);
  IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = g.relation) THEN
    RETURN;   -- the table has been dropped
  END IF;
  v_schemas := ARRAY(SELECT lease.stamping_schemas(g.relation));
  PERFORM lease.drop_guard_triggers(g.relation);
  IF EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = g.relation AND a.attname = 'lease_fence' AND NOT a.attisdropped) THEN
    v_live := ARRAY(SELECT x.fence FROM lease.lease x WHERE x.state = 'held' AND (x.lease_until IS NULL OR x.lease_until > clock_timestamp()) AND x.fence IS NOT NULL);
    EXECUTE format('SELECT t.lease_fence FROM %s AS t WHERE t.lease_fence = ANY ($1) LIMIT 1', g.relation) INTO v_stamp USING v_live;
    IF v_stamp IS NOT NULL THEN
      SELECT * INTO l FROM lease.lease x WHERE x.fence = v_stamp;
      RAISE EXCEPTION '% is in use by % %', g.relation, l.kind, l.lease
        USING ERRCODE = 'LE021', HINT = format('Wait for its end. More: leasectl show %s/%s', l.kind, l.lease);
    END IF;
    EXECUTE format('REVOKE ALL ON TABLE %s FROM lease_stamper', g.relation);
    EXECUTE format('ALTER TABLE %s DROP COLUMN lease_fence', g.relation);
  END IF;
  FOREACH v_schema IN ARRAY v_schemas LOOP
    IF NOT EXISTS (SELECT FROM lease.guarded x CROSS JOIN LATERAL lease.stamping_schemas(x.relation) s WHERE s = v_schema) THEN
      EXECUTE format('REVOKE ALL ON SCHEMA %s FROM lease_stamper', v_schema);
    END IF;
  END LOOP;
END
$$;

-- lease.repair_guard: puts the guard right after somebody altered the table: partitions made since, triggers dropped or disabled, a renamed
-- table or column, privileges, stamping functions. What lease.guard_findings lists with this remedy is gone afterwards.
-- Stamps stay as they are. A guarded column that was dropped is guarded no longer. Locks and rights: as lease.guard_table;
-- where the table takes edits, also those of lease.allow_edits, and its errors: lease.refuse_edits(type) first lets go of a table that can take none.
-- Errors: LE020 for a type that is none, a table that is gone or can no longer be guarded.
CREATE OR REPLACE FUNCTION lease.repair_guard(p_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g lease.guarded; c record;
  v_columns text[];
BEGIN
  PERFORM lease.assert_registrar();
  SELECT * INTO g FROM lease.guarded x WHERE x.type = p_type;
  SELECT t.relname, n.nspname, t.relrowsecurity INTO c FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace WHERE t.oid = g.relation;
  IF NOT FOUND THEN
    PERFORM lease.refuse_guard(format('no table is guarded as %s', coalesce(p_type, 'NULL')), 'SELECT * FROM lease.guarded_tables shows those that are.');
  ELSIF c.relrowsecurity OR NOT EXISTS (SELECT FROM lease.key_of(g.relation)) THEN
    PERFORM lease.refuse_guard(format('%s has row security, or no primary key', g.relation), 'Put that right first, or unguard the table.');
  END IF;
  PERFORM lease.refuse_children(g.relation);
  -- The trigger's list of columns has followed a renamed one; the names that were registered have not.
  v_columns := ARRAY(
    SELECT a.attname::text FROM pg_attribute a
     WHERE a.attrelid = g.relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'lease_fence'
       AND (a.attname = ANY (g.columns)
            OR a.attname <> ALL (g.key_columns || ARRAY(SELECT k.name FROM lease.key_of(g.relation) k))
               AND EXISTS (SELECT FROM pg_trigger t JOIN pg_depend d ON d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
                            WHERE t.tgrelid = g.relation AND t.tgname = 'lease_guard_columns' AND d.refobjid = g.relation AND d.refobjsubid = a.attnum))
     ORDER BY a.attnum);
  IF v_columns = '{}' THEN
    PERFORM lease.refuse_guard(format('no guarded column of %s is left', g.relation), format('SELECT lease.unguard_table(%L), then guard it anew.', p_type));
  END IF;
  PERFORM lease.drop_guard_triggers(g.relation);
  IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = g.relation AND a.attname = 'lease_fence' AND NOT a.attisdropped) THEN
    EXECUTE format('ALTER TABLE %s ADD COLUMN lease_fence bigint', g.relation);
  END IF;
  PERFORM lease.make_guard_triggers(g.relation, v_columns);
  PERFORM lease.grant_stamping(g.relation);
  PERFORM lease.drop_stamp_functions(p_type);
  PERFORM lease.make_stamp_functions(g.relation, p_type);
  UPDATE lease.guarded x SET schema_name = c.nspname, table_name = c.relname, columns = v_columns, key_columns = k.names, key_types = k.types
    FROM (SELECT array_agg(q.name) AS names, array_agg(q.type) AS types FROM lease.key_of(g.relation) q) AS k
   WHERE x.type = p_type;
  IF g.takes_edits THEN
    PERFORM lease.allow_edits(p_type);
  END IF;
END
$$;

-- Raises LE012 unless everything that guards the type's table is in place. Called by each stamp, so it reads no more than it must.
CREATE OR REPLACE FUNCTION lease.assert_guard(p_type text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_table regclass; v_bad regclass;
BEGIN
  SELECT g.relation INTO v_table FROM lease.guarded g JOIN pg_class c ON c.oid = g.relation
   WHERE g.type = p_type AND NOT c.relrowsecurity AND lease.key_names(g.relation) = g.key_columns;
  SELECT r.relation INTO v_bad
    FROM lease.guard_tree(v_table) AS r (relation)
   WHERE (SELECT count(*) FROM pg_trigger t
           WHERE t.tgrelid = r.relation AND t.tgenabled = 'A'
             AND t.tgname IN ('lease_guard_edit', 'lease_guard_stamper', 'lease_guard_delete', 'lease_guard_insert', 'lease_guard_truncate')) <> 5
      OR r.relation <> v_table AND NOT (SELECT c.relispartition FROM pg_class c WHERE c.oid = r.relation)
   LIMIT 1;
  IF v_table IS NULL OR v_bad IS NOT NULL THEN
    RAISE EXCEPTION 'the guard of % is not in place on %', p_type, coalesce(v_bad::text, 'its table')
      USING ERRCODE = 'LE012', HINT = format('SELECT * FROM lease.guard_findings tells what is wrong; SELECT lease.repair_guard(%L) puts most of it right.', p_type);
  END IF;
END
$$;
GRANT EXECUTE ON FUNCTION lease.assert_guard TO lease_stamper;
RESET ROLE;
