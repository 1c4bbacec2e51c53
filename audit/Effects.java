import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * I9, where effects land: the SQL gate's tables in any database, the file server's tables, and its disk. Each database is one snapshot; the
 * disk is looked at behind it, and what looks wrong there is asked of the tables again before it is said.
 */
final class Effects {
    private static final Pattern MOVED = Pattern.compile("^(.*)\\.~([0-9]+)$");

    private final Report report;
    private final Progress progress;

    Effects(Report report, Progress progress) {
        this.report = report;
        this.progress = progress;
    }

    private void broken(String how, Object... words) {
        report.broken(Report.Invariant.I9, Fact.NONE, how, words);
    }

    private void judged() {
        report.judged(Report.Invariant.I9);
    }

    /** No remembered effect is above what the gate holds for the highest fence of its resource, and a fence is one claim's. */
    void gate(Database database) throws Exception {
        if (!database.has("lease_gate.resource")) {
            throw new Unusable("there is no gate (lease_gate.resource) in " + database.where);
        }
        progress.tell("looking at the gate in %s", database.where);
        long base = Long.parseLong(database.value("SELECT last_value FROM lease_gate.base"));
        String[] resource = {null};
        long[] fence = {0};
        String[] claim = {null};
        database.each("SELECT e.resource, e.effect, e.fence, e.claim_id::text, r.fence, r.claim_id::text FROM lease_gate.effect e"
                + " LEFT JOIN lease_gate.resource r USING (resource) ORDER BY e.resource, e.fence", row -> {
                    judged();
                    String its = row.getString(1), itsClaim = row.getString(4), gateClaim = row.getString(6);
                    long itsFence = row.getLong(3), highest = Database.number(row, 5);
                    if (highest == Fact.NONE ? itsFence >= base : itsFence > highest) {
                        broken("gate in %s: effect %s of %s was admitted with fence %d; the gate remembers %s", database.where, row.getString(2), its, itsFence,
                                highest == Fact.NONE ? "nobody there, and refuses below " + base + " only" : "fence " + highest + " as its highest");
                    } else if (itsFence == highest && !itsClaim.equals(gateClaim)) {
                        broken("gate in %s: effect %s of %s was admitted with fence %d of claim %s; the gate remembers that fence of claim %s", database.where,
                                row.getString(2), its, itsFence, itsClaim, gateClaim);
                    } else if (its.equals(resource[0]) && itsFence == fence[0] && !itsClaim.equals(claim[0])) {
                        broken("gate in %s: effects of %s were admitted with fence %d of two claims, %s and %s", database.where, its, itsFence, claim[0], itsClaim);
                    }
                    resource[0] = its;
                    fence[0] = itsFence;
                    claim[0] = itsClaim;
                });
        database.over();
    }

    /** The life of one file, as the rows of fileserver.lifecycle tell it. */
    private final class Life {
        private String file, claim, firstSettled;
        private long fence, settled, bytes;

        void begin(String its) {
            file = its;
            claim = firstSettled = null;
            fence = settled = bytes = 0;
        }

        void take(ResultSet row) throws SQLException {
            String event = row.getString(2), itsClaim = row.getString(4);
            long itsFence = Database.number(row, 3), number = row.getLong(6);
            judged();
            bytes += row.getLong(5);
            if (settled > 0 && !event.equals("begun") && !event.equals("confirmed")) {
                broken("%s: row %d of the lifecycle, %s, comes after it was settled by row %s", file, number, event, firstSettled);
            }
            if (event.equals("settled")) {
                settled++;
                firstSettled = Long.toString(number);
            }
            if (itsFence == Fact.NONE) {
                return;
            }
            if (itsFence < fence || itsFence == fence && !itsClaim.equals(claim)) {
                broken("%s: row %d of the lifecycle, %s, has fence %d (claim %s) behind fence %d (claim %s)", file, number, event, itsFence, itsClaim, fence, claim);
            }
            if (itsFence >= fence) {
                fence = itsFence;
                claim = itsClaim;
            }
        }
    }

    void fileServer(Database database) throws Exception {
        if (!database.has("fileserver.lifecycle")) {
            throw new Unusable("there is no file server (fileserver.lifecycle) in " + database.where);
        }
        progress.tell("looking at the file server in %s", database.where);
        long base = Long.parseLong(database.value("SELECT last_value FROM lease_gate.base"));
        Life life = new Life();
        database.each("SELECT l.file, l.event, l.fence, l.claim_id::text, l.bytes_change, l.number, f.state, f.bytes, f.settled_by, g.fence, g.claim_id::text,"
                + " lead(l.file) OVER (ORDER BY l.file, l.number) IS DISTINCT FROM l.file"
                + " FROM fileserver.lifecycle l LEFT JOIN fileserver.file f USING (file) LEFT JOIN lease_gate.resource g ON g.resource = 'file/' || l.file"
                + " ORDER BY l.file, l.number", row -> {
                    if (!row.getString(1).equals(life.file)) {
                        life.begin(row.getString(1));
                    }
                    life.take(row);
                    if (row.getBoolean(12)) {
                        over(life, row, base);
                    }
                });
        database.each("SELECT f.file, f.state FROM fileserver.file f WHERE NOT EXISTS (SELECT FROM fileserver.lifecycle l WHERE l.file = f.file)",
                row -> broken("%s is %s, and nothing is known of its life", row.getString(1), row.getString(2)));
        database.each("SELECT a.account, a.used_bytes, coalesce(s.stored, 0), coalesce(s.happened, 0) FROM fileserver.account a LEFT JOIN ("
                + "SELECT f.account, sum(f.bytes) FILTER (WHERE f.state <> 'deleted') AS stored, sum(l.bytes) AS happened FROM fileserver.file f"
                + " LEFT JOIN (SELECT file, sum(bytes_change) AS bytes FROM fileserver.lifecycle GROUP BY file) l USING (file) GROUP BY f.account) s USING (account)"
                + " ORDER BY a.account", row -> {
                    judged();
                    if (row.getLong(2) != row.getLong(3) || row.getLong(2) != row.getLong(4)) {
                        broken("account %s uses %d bytes; its files have %d, and by their lives they have %d", row.getString(1), row.getLong(2), row.getLong(3),
                                row.getLong(4));
                    }
                });
        database.over();
    }

    /** row: the last one of the file's life, with what the tables say of the file now. */
    private void over(Life life, ResultSet row, long base) throws SQLException {
        String state = row.getString(7);
        long gate = Database.number(row, 10);
        judged();
        if (state == null || ("deleted".equals(state) ? life.settled != 1 : life.settled != 0)) {
            broken("%s is %s, and was settled %d times", life.file, state == null ? "in no table" : state, life.settled);
        } else if (life.bytes != ("deleted".equals(state) ? 0 : row.getLong(8))) {
            broken("%s is %s and has %d bytes; by its life it counts for %d", life.file, state, row.getLong(8), life.bytes);
        }
        if (life.fence > 0 && (gate == Fact.NONE ? life.fence >= base : gate < life.fence || gate == life.fence && !life.claim.equals(row.getString(11)))) {
            broken("%s: fence %d (claim %s) was let in, and the gate remembers %s", life.file, life.fence, life.claim,
                    gate == Fact.NONE ? "nobody" : "fence " + gate + " (claim " + row.getString(11) + ") as its highest");
        }
    }

    /**
     * What is beneath the root: a name that carries a fence was moved by a worker that had begun under it; and of an item that its worker
     * finished nothing is left. leases: the coordinator's database.
     */
    void disk(Database database, Database leases, Path root, java.util.Set<String> kinds) throws Exception {
        if (!Files.isDirectory(root)) {
            throw new Unusable(root + " is no folder");
        }
        long[] seen = {0};
        try (PreparedStatement name = database.connection.prepareStatement("SELECT n.file, f.state FROM fileserver.physical_name n JOIN fileserver.file f USING (file)"
                + " WHERE n.physical_name = ?");
                PreparedStatement begun = database.connection.prepareStatement("SELECT FROM fileserver.lifecycle WHERE file = ? AND event = 'begun' AND fence = ?");
                PreparedStatement finish = leases.connection.prepareStatement("SELECT number, command FROM lease.timeline WHERE subject = ? AND event = 'finished'"
                        + " AND kind = ANY (?) ORDER BY number DESC LIMIT 1")) {
            database.connection.setAutoCommit(true); // each look sees what is committed by then
            leases.connection.setAutoCommit(true);
            Files.walkFileTree(root, new SimpleFileVisitor<>() {
                @Override
                public FileVisitResult visitFile(Path path, BasicFileAttributes attributes) throws IOException {
                    progress.tell("%,d files on the disk", ++seen[0]);
                    try {
                        look(root.relativize(path).toString(), path);
                    } catch (SQLException problem) {
                        throw new IOException(problem);
                    }
                    return FileVisitResult.CONTINUE;
                }

                @Override
                public FileVisitResult visitFileFailed(Path path, IOException problem) throws IOException {
                    if (problem instanceof java.nio.file.NoSuchFileException) { // moved, or removed, meanwhile
                        return FileVisitResult.CONTINUE;
                    }
                    throw problem;
                }

                private void look(String path, Path whole) throws SQLException {
                    Matcher moved = MOVED.matcher(path);
                    boolean isMoved = moved.matches();
                    name.setString(1, isMoved ? moved.group(1) : path);
                    String file, state;
                    try (ResultSet found = name.executeQuery()) {
                        if (!found.next()) {
                            return; // nobody's here: a write that is under way, or something else
                        }
                        file = found.getString(1);
                        state = found.getString(2);
                    }
                    judged();
                    if (isMoved && moved.group(2).length() < 19) {
                        begun.setString(1, file);
                        begun.setLong(2, Long.parseLong(moved.group(2)));
                        try (ResultSet found = begun.executeQuery()) {
                            if (!found.next()) {
                                broken("%s was moved under fence %s, which never began on file %s", path, moved.group(2), file);
                            }
                        }
                    }
                    if ("deleted".equals(state) && !kinds.isEmpty()) {
                        finish.setString(1, file);
                        finish.setArray(2, leases.connection.createArrayOf("text", kinds.toArray()));
                        try (ResultSet found = finish.executeQuery()) {
                            if (found.next() && "finish".equals(found.getString(2)) && Files.exists(whole)) {
                                broken("%s is still on the disk; file %s was settled, and finished at number %d", path, file, found.getLong(1));
                            }
                        }
                    }
                }
            });
            database.connection.setAutoCommit(false);
            leases.connection.setAutoCommit(false);
        }
    }
}
