import java.io.IOException;
import java.nio.file.Path;

/**
 * By lease: what became of it, row by row. I1, I2: its own grants rise, and follow an end. I3: who changed it had the last grant. I8, I10.
 * At the end, what the tables and lease.state say of it now.
 */
final class LeaseBook extends Book {
    private static final int ROW = 0, SAID = 1, UNSEEN = 2, RECORD = 3, TABLE = 4;

    private String kind, subject;
    private Row last; // the last one that changed its state
    private Row grant; // the last grant
    private boolean isLive; // granted, and not ended since
    private long finalAt, finalNumber;
    private String finalEvent;
    private boolean isUnfenced; // in progress under no grant
    private long given; // the expiry that an operator, or the old table, gave it
    private long until;
    private boolean isUnseen;
    private long highest; // fence
    private long latest; // time of a row
    private long highestAt;
    private boolean isInTable;
    private long due, kept, keptLost; // numbers in lease.state
    private boolean isRestatedLater;

    LeaseBook(Cut cut, Report report, Path folder, long budget) {
        super("leases", cut, report, folder, budget);
    }

    private Fact.Out of(String kind, String subject, long number, int type) {
        return out.start().key(kind).key(subject).number(number).type(type);
    }

    void row(Row row) throws IOException {
        row.put(of(row.kind, row.subject, row.number, ROW));
        add();
    }

    /** A command that changed it named this grant. until: of an item of many, which has no row of its own. */
    void said(String kind, String subject, long number, String event, Message.Grant grant, long until) throws IOException {
        of(kind, subject, number, SAID).text(event).text(grant.holder()).number(grant.fence()).text(grant.claimId()).number(until);
        add();
    }

    void renewedUnseen(String kind, String subject, long number) throws IOException {
        of(kind, subject, number, UNSEEN);
        add();
    }

    void record(String kind, String subject, long number) throws IOException {
        of(kind, subject, number, RECORD);
        add();
    }

    void table(String kind, String subject, String state, String holder, String claimId, long fence, long until) throws IOException {
        of(kind, subject, Fact.LAST, TABLE).text(state).text(holder).text(claimId).number(fence).number(until);
        add();
    }

    @Override
    void take(Fact.In in) {
        String itsKind = in.key(), itsSubject = in.key();
        if (!itsKind.equals(kind) || !itsSubject.equals(subject)) {
            end();
            kind = itsKind;
            subject = itsSubject;
            last = grant = null;
            isLive = isUnfenced = isUnseen = isInTable = isRestatedLater = false;
            finalAt = finalNumber = given = until = highestAt = latest = Fact.NONE;
            highest = 0;
            due = kept = keptLost = 0;
        }
        long number = in.number();
        switch (in.type()) {
            case ROW -> row(in);
            case SAID -> said(in, number);
            case UNSEEN -> isUnseen = true;
            case RECORD -> {
                if (number > cut.published) {
                    isRestatedLater = true;
                } else if (cut.isLost(number)) {
                    keptLost = number;
                } else {
                    kept = number;
                }
            }
            default -> table(in);
        }
    }

    private String name() {
        return kind + "/" + subject;
    }

    private void row(Fact.In in) {
        Row row = Row.get(in);
        if (row.isDueInState() && row.number <= cut.published) {
            due = row.number;
        }
        if (row.is("restated")) {
            return;
        }
        if (latest != Fact.NONE && row.at < latest) {
            cut.clockBackUs = Math.max(cut.clockBackUs, latest - row.at);
        }
        latest = row.at;
        if (finalNumber != Fact.NONE) {
            afterTheEnd(row);
        }
        if (row.isGrant) {
            granted(row);
        } else if (row.isHolders()) {
            changed(row);
        } else if (row.is("imported")) {
            isUnfenced = "held".equals(row.state);
            given = row.until;
            isLive = false;
            rises(row);
        } else if (row.isResolved()) {
            if (row.is("renewed")) {
                given = row.until;
            } else {
                isLive = isUnfenced = false;
            }
        } else if (row.isLapse()) {
            lapsed(row);
        }
        if (row.changesLease) {
            last = row;
        }
        if (row.isFinal()) {
            finalNumber = row.number;
            finalAt = row.at;
            finalEvent = row.event;
        }
    }

    /** An ended lease is forgotten after a while, and its name may be used anew. */
    private void afterTheEnd(Row row) {
        report.judged(Report.Invariant.I10);
        Cut.Kind rules = cut.kinds.get(kind);
        if ((row.isGrant || row.is("requested") || row.is("imported")) && rules != null && row.at - finalAt >= rules.keepFinalUs()) {
            grant = null;
            isLive = isUnfenced = false;
        } else {
            report.broken(Report.Invariant.I10, row.number, "%s was %s at number %d after it had ended (%s) at number %d", name(), row.event, row.number,
                    finalEvent, finalNumber);
        }
        finalNumber = Fact.NONE;
    }

    private void rises(Row row) {
        if (row.fence == Fact.NONE) {
            return;
        }
        report.judged(Report.Invariant.I1);
        if (highestAt != Fact.NONE && row.fence <= highest) {
            report.broken(Report.Invariant.I1, row.number, "%s: fence %d at number %d is not above %d at number %d", name(), row.fence, row.number, highest, highestAt);
        }
        highest = row.fence;
        highestAt = row.number;
    }

    private void granted(Row row) {
        rises(row);
        report.judged(Report.Invariant.I8);
        if (isUnfenced) {
            report.broken(Report.Invariant.I8, row.number, "%s was granted at number %d to %s; it was in progress under no grant, and nobody had resolved it",
                    name(), row.number, row.holder);
        }
        report.judged(Report.Invariant.I2);
        if (isLive) {
            report.broken(Report.Invariant.I2, row.number, "%s was granted to %s (fence %d) at number %d while %s had it (fence %d, number %d), which had not ended",
                    name(), row.holder, row.fence, row.number, grant.holder, grant.fence, grant.number);
        }
        grant = row;
        isLive = true;
        isUnfenced = isUnseen = false;
        until = row.until;
    }

    private void changed(Row row) {
        if (grant != null) {
            compare(row.number, row.event, "tells of", row.holder, row.fence, row.claimId);
            if (row.is("renewed")) {
                until = row.until;
            }
        } else if (cut.isWhole) {
            report.judged(Report.Invariant.I3);
            report.broken(Report.Invariant.I3, row.number, "%s was %s at number %d, and was never granted", name(), row.event, row.number);
        }
        if (Row.ENDS.contains(row.event)) {
            isLive = false;
        }
    }

    private void compare(long number, String event, String how, String holder, long fence, String claimId) {
        report.judged(Report.Invariant.I3);
        String difference = fence != grant.fence ? "fence " + fence + ", the last grant has " + grant.fence
                : !grant.claimId.equals(claimId) ? "claim " + claimId + ", the last grant has " + grant.claimId
                : !grant.holder.equals(holder) ? "holder " + holder + ", the last grant has " + grant.holder : null;
        if (difference != null) {
            report.broken(Report.Invariant.I3, number, "%s was %s at number %d, which %s %s (number %d)", name(), event, number, how, difference, grant.number);
        }
    }

    private void said(Fact.In in, long number) {
        String event = in.text(), holder = in.text();
        long fence = in.number();
        String claimId = in.text();
        long itsUntil = in.number();
        if (grant == null) {
            report.leftOut(Report.Invariant.I3, I_HAVE_NO_GRANT);
            return;
        }
        compare(number, event, "was asked for with", holder, fence, claimId);
        if (itsUntil != Fact.NONE) {
            until = itsUntil;
            if (finalNumber != Fact.NONE) {
                report.broken(Report.Invariant.I10, number, "%s was renewed at number %d after it had ended at number %d", name(), number, finalNumber);
            }
        }
    }

    private void lapsed(Row row) {
        report.judged(Report.Invariant.I8);
        if (row.until == Fact.NONE) {
            report.broken(Report.Invariant.I8, row.number, "%s has no expiry, and %s at number %d", name(), row.is("dead") ? "died" : "lapsed", row.number);
        } else if (row.claimId == null && cut.isWhole && row.until != given) {
            report.broken(Report.Invariant.I8, row.number, "%s %s at number %d by the expiry %s, which nobody gave it", name(),
                    row.is("dead") ? "died" : "lapsed", row.number, time(row.until));
        }
        isLive = isUnfenced = false;
    }

    private void table(Fact.In in) {
        isInTable = true;
        String state = in.text(), holder = in.text(), claimId = in.text();
        long fence = in.number(), itsUntil = in.number();
        if (last == null) {
            return;
        }
        if (Row.FINAL_STATES.contains(last.state)) {
            report.judged(Report.Invariant.I10);
            if (!last.state.equals(state)) {
                report.broken(Report.Invariant.I10, last.number, "%s ended at number %d as %s, and is %s in the table", name(), last.number, last.state, state);
            }
            return;
        }
        if ("held".equals(last.state) && isUnfenced && given == Fact.NONE) {
            report.judged(Report.Invariant.I8);
            if (!"held".equals(state) || itsUntil != Fact.NONE) {
                report.broken(Report.Invariant.I8, last.number, "%s has no expiry since number %d, and in the table it is %s until %s", name(), last.number, state,
                        time(itsUntil));
            }
            return;
        }
        if ("held".equals(state) && !"held".equals(last.state)) {
            report.judged(Report.Invariant.I2);
            report.broken(Report.Invariant.I2, last.number, "%s was over at number %d (%s, %s), and in the table %s holds it with fence %d until %s", name(),
                    last.number, last.event, last.state, holder, fence, time(itsUntil));
            return;
        }
        report.judged(Report.Invariant.I3);
        if (!last.state.equals(state)) {
            report.broken(Report.Invariant.I3, last.number, "%s is %s since number %d, and %s in the table: by nobody's command", name(), last.state, last.number, state);
        } else if (isLive && grant != null) {
            compareTable(holder, claimId, fence, itsUntil);
        }
    }

    private void compareTable(String holder, String claimId, long fence, long itsUntil) {
        if (fence != grant.fence || !grant.claimId.equals(claimId) || !grant.holder.equals(holder)) {
            report.broken(Report.Invariant.I3, grant.number, "%s was granted to %s (fence %d, claim %s) at number %d; in the table it is %s's (fence %d, claim %s)",
                    name(), grant.holder, grant.fence, grant.claimId, grant.number, holder, fence, claimId);
        } else if (!isUnseen && cut.published == cut.head) {
            report.judged(Report.Invariant.I2);
            if (itsUntil != until) {
                report.broken(Report.Invariant.I2, grant.number, "%s (fence %d, number %d): its holder was told that it lives until %s; in the table it is %s",
                        name(), grant.fence, grant.number, time(until), time(itsUntil));
            }
        }
    }

    @Override
    void end() {
        if (kind == null) {
            return;
        }
        if (last != null && !isInTable && !Row.FINAL_STATES.contains(last.state)) {
            report.judged(Report.Invariant.I3);
            report.broken(Report.Invariant.I3, last.number, "%s is %s since number %d, and in no table any more", name(), last.state, last.number);
        }
        inState();
    }

    /** lease.state is compacted: what counts is the highest number of a key. */
    private void inState() {
        if (due == 0 || isRestatedLater || keptLost > due) {
            return;
        }
        report.judged(Report.Invariant.I4);
        if (kept != due) {
            report.broken(Report.Invariant.I4, due, "lease.state has number %d of %s, the journal %d", kept, name(), due);
        }
    }
}
