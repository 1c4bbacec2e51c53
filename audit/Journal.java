import com.fasterxml.jackson.databind.JsonNode;
import java.sql.Array;
import java.sql.ResultSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Reads the coordinator's database, by the views that lease_reader sees. One snapshot gives the cut and what the tables say; it is short, and
 * the journal, which is only ever appended to, is read behind it in small transactions.
 */
final class Journal {
    private static final int ROWS_AT_ONCE = 5000; // a transaction each: none is long
    private static final String US = "(extract(epoch FROM %s) * 1000000)::bigint";
    private static final String ROWS = "SELECT number, " + us("at") + ", event, kind, subject, command, source, message_id, origin_topic, origin_partition,"
            + " origin_offset, holder, claim_id::text, fence, " + us("since") + ", " + us("lease_until") + ", min_fence, state, attempt, step, reason, field,"
            + " changes_lease, is_grant, previous_number, basis::text, blocker::text, original::text, operator::text, traceparent"
            + " FROM lease.timeline WHERE number > ? AND number <= ? ORDER BY number LIMIT " + ROWS_AT_ONCE;

    private final Database database;
    private final String prefix;
    private final Cut cut;
    private final Report report;
    private final Books books;
    private final Progress progress;
    private final Map<Cut.Partition, Row> origins = new HashMap<>(); // the newest message that the journal names
    private Row before;
    long rows;

    Journal(Database database, String prefix, Cut cut, Report report, Books books, Progress progress) {
        this.database = database;
        this.prefix = prefix;
        this.cut = cut;
        this.report = report;
        this.books = books;
        this.progress = progress;
    }

    static String us(String column) {
        return String.format(US, column);
    }

    private String topic(String name) {
        return name != null && name.startsWith(prefix) ? name.substring(prefix.length()) : name;
    }

    // ---- the snapshot ----

    void snapshot() throws Exception {
        if (!database.has("lease.timeline")) {
            throw new Unusable("there is no view lease.timeline in " + database.where);
        }
        database.over();
        database.each("SELECT clock_timestamp()::text, coalesce((SELECT number FROM lease.timeline ORDER BY number DESC LIMIT 1), 0)", row -> {
            cut.takenAt = row.getString(1);
            cut.head = row.getLong(2);
        });
        cut.server = database.value("SELECT system_identifier || ' timeline ' || timeline FROM lease.server_identity");
        cut.dedupWindowUs = Long.parseLong(database.value("SELECT " + us("dedup_window") + " FROM lease.settings"));
        database.each("SELECT kind, mode, covers, " + us("keep_final") + " FROM lease.kinds",
                row -> cut.kinds.put(row.getString(1), new Cut.Kind(row.getString(1), row.getString(2), row.getString(3), row.getLong(4))));
        consumed(cut.consumed);
        database.each("SELECT table_name, code FROM lease.guard_findings WHERE type IS NOT NULL",
                row -> report.leftOut(Report.Invariant.I7, "what the guard of " + row.getString(1) + " may not see (" + row.getString(2) + ")"));
        database.each("SELECT type, ids, login, " + us("granted_at") + ", " + us("least(valid_until, coalesce(ended_at, valid_until))") + " FROM lease.guard_exceptions",
                row -> cut.exceptions.add(new Cut.Exception(row.getString(1), texts(row.getArray(2)), row.getString(3), row.getLong(4), row.getLong(5))));
        database.each("SELECT kind, lease, state, holder, claim_id::text, fence, " + us("lease_until") + " FROM lease.leases",
                row -> books.leases.table(row.getString(1), row.getString(2), row.getString(3), row.getString(4), row.getString(5), Database.number(row, 6),
                        Database.number(row, 7)));
        database.each("SELECT resource, fence FROM lease.resources", row -> books.resources.stamp(row.getString(1), Database.number(row, 2)));
        database.each("SELECT fence, type, id, " + us("at") + ", by FROM lease.admitted_edits",
                row -> books.fences.edit(row.getLong(1), row.getString(2), row.getString(3), row.getLong(4), row.getString(5), Fact.NONE));
        database.over();
    }

    private static Set<String> texts(Array array) throws java.sql.SQLException {
        return array == null ? null : new HashSet<>(List.of((String[]) array.getArray()));
    }

    private void consumed(Map<Cut.Partition, Long> into) throws Exception {
        database.each("SELECT topic, partition, next_offset FROM lease.partitions WHERE next_offset IS NOT NULL",
                row -> into.put(new Cut.Partition(topic(row.getString(1)), row.getInt(2)), row.getLong(3)));
    }

    /** Waits until the relay has published the snapshot's head, as long as it gets on, and for waitMs once it does not. */
    void awaitPublished(long waitMs) throws Exception {
        long since = System.currentTimeMillis(), seen = -1;
        while (true) {
            long published = Long.parseLong(database.value("SELECT coalesce(max(published), 0) FROM lease.relay_status"));
            database.over();
            cut.published = Math.min(published, cut.head);
            long now = System.currentTimeMillis();
            if (cut.published == cut.head || now - since >= waitMs && published == seen) {
                return;
            }
            if (published != seen) {
                seen = published;
                since = now;
            }
            progress.tell("waiting until the journal is published up to %d; it is up to %d", cut.head, published);
            Thread.sleep(50);
        }
    }

    // ---- the journal ----

    void read() throws Exception {
        long[] after = {0, -1};
        while (after[0] != after[1]) {
            after[1] = after[0];
            database.each(ROWS, found -> {
                take(rowOf(found), found);
                after[0] = found.getLong(1);
            }, after[0], cut.head);
            database.over();
            progress.tell("%,d rows of the journal, up to number %d of %d", rows, after[0], cut.head);
        }
        for (Map.Entry<Cut.Partition, Row> one : origins.entrySet()) {
            report.judged(Report.Invariant.I6);
            long next = cut.consumed.getOrDefault(one.getKey(), 0L);
            if (one.getValue().offset >= next) {
                report.broken(Report.Invariant.I6, one.getValue().number, "%s would be consumed from offset %d on, and offset %d was decided at number %d", one.getKey(),
                        next, one.getValue().offset, one.getValue().number);
            }
        }
    }

    /** A second look, at the end. */
    void lookAgain() throws Exception {
        Map<Cut.Partition, Long> now = new HashMap<>();
        consumed(now);
        boolean isSame = cut.server.equals(database.value("SELECT system_identifier || ' timeline ' || timeline FROM lease.server_identity"));
        database.over();
        for (Map.Entry<Cut.Partition, Long> one : cut.consumed.entrySet()) {
            report.judged(Report.Invariant.I6);
            long next = now.getOrDefault(one.getKey(), 0L);
            if (isSame && next < one.getValue()) {
                report.broken(Report.Invariant.I6, Fact.NONE, "%s was consumed up to offset %d, and at the end of the audit up to %d", one.getKey(), one.getValue(), next);
            }
        }
    }

    private Row rowOf(ResultSet found) throws java.sql.SQLException {
        Row row = new Row();
        row.number = found.getLong(1);
        row.at = found.getLong(2);
        row.event = found.getString(3);
        row.kind = found.getString(4);
        row.subject = found.getString(5);
        row.command = found.getString(6);
        row.source = found.getString(7);
        row.id = found.getString(8);
        row.topic = topic(found.getString(9));
        row.partition = Database.number(found, 10);
        row.offset = Database.number(found, 11);
        row.holder = found.getString(12);
        row.claimId = found.getString(13);
        row.fence = Database.number(found, 14);
        row.since = Database.number(found, 15);
        row.until = Database.number(found, 16);
        row.minFence = Database.number(found, 17);
        row.state = found.getString(18);
        row.attempt = Database.number(found, 19);
        row.step = found.getString(20);
        row.reason = found.getString(21);
        row.field = found.getString(22);
        row.changesLease = found.getBoolean(23);
        row.isGrant = found.getBoolean(24);
        row.previous = Database.number(found, 25);
        return row;
    }

    private void take(Row row, ResultSet found) throws Exception {
        rows++;
        gapless(row);
        if (row.is("jumped") && row.previous != Fact.NONE) {
            cut.lost.add(new long[] {row.previous, row.number});
        }
        if (row.topic != null) {
            origin(row);
        }
        due(row);
        if (row.isOfLease() && !"claim".equals(row.command)) {
            books.leases.row(row);
            lease(row);
        }
        named(row);
        basis(row, found.getString(26));
        scan(row, found);
    }

    private void gapless(Row row) {
        if (before == null) {
            cut.first = row.number;
            cut.isWhole = row.number == 1 || row.is("jumped") && row.previous == 0;
        } else {
            long due = row.is("jumped") && row.previous != Fact.NONE ? row.previous : row.number - 1;
            report.judged(Report.Invariant.I4);
            if (before.number != due) {
                report.broken(Report.Invariant.I4, row.number, "the journal goes from number %d to %d", before.number, row.number);
            }
        }
        before = row;
    }

    private void origin(Row row) throws Exception {
        Cut.Partition place = new Cut.Partition(row.topic, (int) row.partition);
        cut.firstOrigins.putIfAbsent(place, row.offset);
        Row newest = origins.get(place);
        report.judged(Report.Invariant.I6);
        if (newest != null && row.offset < newest.offset) {
            report.broken(Report.Invariant.I6, row.number, "%s: offset %d was decided at number %d, behind offset %d at number %d", place, row.offset, row.number,
                    newest.offset, newest.number);
        } else {
            origins.put(place, row);
        }
        books.places.row(row);
    }

    private void due(Row row) throws Exception {
        if (row.isDueInResults()) {
            books.numbers.due("lease.results", row.number, row.subject, row.inResults());
        }
        if (row.isDueInGrants()) {
            books.numbers.due("lease.grants", row.number, row.holder, row.inGrants());
        }
        if (row.isDueInState()) {
            books.numbers.due("lease.state", row.number, row.lease(), row.inState());
        }
        if (row.is("dead_letter")) {
            books.numbers.due("lease.dead-letters", row.number, null, row.inDeadLetters());
        }
    }

    private void lease(Row row) throws Exception {
        books.fences.row(row);
        Cut.Kind kind = cut.kinds.get(row.kind);
        boolean isImported = row.is("imported") && "held".equals(row.state);
        if (row.isGrant && row.fence != Fact.NONE && row.claimId != null) {
            books.fences.granted(row);
            books.claims.granted(row.claimId, row.fence, row.number);
            if (row.command == null && row.id != null && kind != null && kind.mode().equals("run")) {
                books.messages.served(row);
            }
        }
        if ((row.isGrant || isImported) && row.fence != Fact.NONE && kind != null && kind.covers() != null) {
            books.fences.covers(row.fence, row.number, kind.covers() + "/" + row.subject, false);
        }
    }

    private void named(Row row) throws Exception {
        boolean isLookedAt = !(row.is("malformed") || row.is("duplicate") || row.is("dead_letter"));
        if (row.command != null && row.topic != null && row.id != null && row.source != null && isLookedAt) {
            books.messages.answer(row);
        }
    }

    /** What a run was told of edits at its end. */
    private void basis(Row row, String basis) throws Exception {
        if (basis == null || row.fence == Fact.NONE) {
            return;
        }
        for (JsonNode change : Message.JSON.readTree(basis).path("changes")) {
            String[] resource = change.path("resource").asText().split("/", 2);
            if (resource.length == 2) {
                books.fences.edit(row.fence, resource[0], resource[1], Outputs.us(change.path("at").asText()), change.path("by").asText(), row.number);
            }
        }
    }

    private void scan(Row row, ResultSet found) throws Exception {
        report.judged(Report.Invariant.I11);
        String where = "number " + row.number + " of the journal";
        for (String text : new String[] {row.subject, row.source, row.id, row.holder, row.reason, row.field, row.step, found.getString(26), found.getString(27),
            found.getString(28), found.getString(29), found.getString(30)}) {
            books.tokens.look(text, row.number, where);
        }
    }

    // ---- tokens in tables ----

    /** Every readable table and view of the schemas, as text; the journal has been looked at, and where a token belongs nobody looks. */
    static void scanTables(Database database, List<String> schemas, Report report, Books books, Progress progress) throws Exception {
        List<String> relations = new java.util.ArrayList<>();
        database.each("SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                + " WHERE n.nspname = ANY (?) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition"
                + " AND NOT (n.nspname = 'lease' AND c.relname IN ('journal', 'timeline', 'dedup', 'decision')) AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1",
                row -> relations.add(row.getString(1)), database.connection.createArrayOf("text", schemas.toArray()));
        relations.add("pg_catalog.pg_stat_activity");
        for (String relation : relations) {
            progress.tell("looking for tokens in %s", relation);
            database.each("SELECT t::text FROM " + relation + " AS t", row -> {
                report.judged(Report.Invariant.I11);
                books.tokens.look(row.getString(1), Fact.NONE, "a row of " + relation);
            });
            database.over();
        }
    }
}
