import java.io.IOException;
import java.nio.file.Path;

/**
 * By fence: the life of a grant. I1: a fence is one claim's. I2: it is renewed and used while it lives, and a lapse comes when it is over.
 * I7: no edit of a row that it covers was let in while it lived, unless an operator's exception says so.
 * Knowing where the life ends, it passes the resources on to their book.
 */
final class FenceBook extends Book {
    private static final int GRANT = 0, RECORD = 1, UNSEEN = 2, RENEWED = 3, USED = 4, BEGUN = 5, LAPSED = 6, ENDED = 7, COVERS = 8, EDIT = 9;

    private final ResourceBook resources;
    private long unseenUpto = -1; // renewals of we do not know which leases, up to this number

    private long fence = -1;
    private String claimId, lease;
    private long grantedAt, since, until, lapsedAt, endedAt, endedTime, begunAt, finishedAt;
    private boolean isUnseen;
    private String ending;

    FenceBook(Cut cut, Report report, Path folder, long budget, ResourceBook resources) {
        super("fences", cut, report, folder, budget);
        this.resources = resources;
    }

    private Fact.Out of(long fence, long number, int type) {
        return out.start().number(fence).number(number).type(type);
    }

    void granted(Row row) throws IOException {
        of(row.fence, row.number, GRANT).text(row.claimId).text(row.lease()).number(row.since).number(row.until);
        add();
    }

    /** A record of lease.grants, also of a history that a failover left behind. */
    void grantRecord(long number, long fence, String claimId, String lease) throws IOException {
        of(fence, number, RECORD).text(claimId).text(lease);
        add();
    }

    void renewed(long fence, long number, long at, long until, String lease) throws IOException {
        of(fence, number, RENEWED).number(at).number(until).text(lease);
        add();
    }

    void renewedUnseen(long fence, long number) throws IOException {
        of(fence, number, UNSEEN);
        add();
    }

    void renewedUnseen(long number) {
        unseenUpto = Math.max(unseenUpto, number);
    }

    /** What a row of the journal tells of its fence, grants apart. */
    void row(Row row) throws IOException {
        if (row.fence == Fact.NONE || row.isGrant || row.is("restated") || row.is("requested")) {
            return;
        }
        if (row.is("renewed") && row.isHolders()) {
            renewed(row.fence, row.number, row.at, row.until, row.lease());
            return;
        }
        boolean isBegun = row.is("granted") && "begin".equals(row.command);
        int type = isBegun ? BEGUN : row.is("covered") || row.is("advanced") ? USED : row.isLapse() ? LAPSED
                : Row.ENDS.contains(row.event) && (row.isHolders() || row.isResolved()) ? ENDED : -1;
        if (type >= 0) {
            of(row.fence, row.number, type).number(row.at).number(row.until).text(row.event + " " + row.lease()).flag(row.isHolders());
            add();
        }
    }

    void covers(long fence, long number, String resource, boolean isTable) throws IOException {
        of(fence, Fact.LAST, COVERS).number(number).text(resource).flag(isTable);
        add();
    }

    void edit(long fence, String type, String id, long at, String by, long number) throws IOException {
        of(fence, Fact.LAST, EDIT).number(number).text(type).text(id).number(at).text(by);
        add();
    }

    private void begin(long itsFence) {
        fence = itsFence;
        claimId = lease = ending = null;
        grantedAt = since = until = Fact.NONE;
        lapsedAt = endedAt = begunAt = finishedAt = Fact.LAST;
        endedTime = Fact.NONE;
        isUnseen = false;
    }

    /** Whether all that is known of its expiry is known here. */
    private boolean isKnown() {
        return since != Fact.NONE && !isUnseen && until != Fact.NONE && grantedAt > unseenUpto;
    }

    @Override
    void take(Fact.In in) throws IOException {
        long itsFence = in.number();
        if (itsFence != fence) {
            begin(itsFence);
        }
        long number = in.number();
        switch (in.type()) {
            case GRANT -> {
                claim(number, in.text(), in.text());
                grantedAt = number;
                since = in.number();
                until = in.number();
            }
            case RECORD -> claim(number, in.text(), in.text());
            case UNSEEN -> isUnseen = true;
            case RENEWED -> {
                long at = in.number(), itsUntil = in.number();
                mustLive(number, at, "renewed " + in.text());
                until = until == Fact.NONE || itsUntil == Fact.NONE ? until : Math.max(until, itsUntil);
            }
            case USED -> {
                long at = in.number();
                in.number();
                mustLive(number, at, in.text());
            }
            case BEGUN -> {
                long at = in.number();
                in.number();
                mustLive(number, at, in.text());
                begunAt = Math.min(begunAt, number);
            }
            case LAPSED -> {
                long at = in.number();
                in.number();
                String what = in.text();
                if (isKnown()) {
                    report.judged(Report.Invariant.I2);
                    if (at < until) {
                        report.broken(Report.Invariant.I2, number, "%s at number %d, at %s: fence %d was live until %s", what, number, time(at), fence, time(until));
                    }
                }
                lapsedAt = Math.min(lapsedAt, number);
                ended(number, at, what);
            }
            case ENDED -> {
                long at = in.number();
                in.number();
                String what = in.text();
                boolean isHolders = in.flag();
                boolean isFinished = what.startsWith("finished ");
                if (isHolders && !(isFinished && lapsedAt < number)) {
                    mustLive(number, at, what);
                }
                if (isHolders && isFinished) {
                    finishedAt = Math.min(finishedAt, number);
                }
                ended(number, at, what);
            }
            case COVERS -> {
                long itsNumber = in.number();
                String resource = in.text();
                boolean isTable = in.flag();
                resources.taken(resource, itsNumber, fence, isTable ? Math.min(endedAt, begunAt) : endedAt, isTable ? Fact.LAST : finishedAt,
                        lease == null ? "fence " + fence : lease);
            }
            default -> edited(in);
        }
    }

    private void claim(long number, String itsClaim, String itsLease) {
        report.judged(Report.Invariant.I1);
        if (claimId == null) {
            claimId = itsClaim;
            lease = itsLease;
            grantedAt = number;
        } else if (!claimId.equals(itsClaim) || !itsLease.equals(lease)) {
            report.broken(Report.Invariant.I1, number, "fence %d was given to %s (claim %s, number %d) and to %s (claim %s, number %d)", fence, lease, claimId,
                    grantedAt, itsLease, itsClaim, number);
        } else if (number != grantedAt) {
            report.broken(Report.Invariant.I1, number, "fence %d was given to %s at number %d and again at number %d", fence, lease, grantedAt, number);
        }
    }

    private void mustLive(long number, long at, String what) {
        if (endedAt < number) {
            report.judged(Report.Invariant.I2);
            report.broken(Report.Invariant.I2, number, "%s at number %d, under fence %d, which was over since number %d (%s)", what, number, fence, endedAt, ending);
        } else if (isKnown()) {
            report.judged(Report.Invariant.I2);
            if (at >= until) {
                report.broken(Report.Invariant.I2, number, "%s at number %d, at %s: fence %d had expired at %s", what, number, time(at), fence, time(until));
            }
        }
    }

    private void ended(long number, long at, String what) {
        if (number < endedAt) {
            endedAt = number;
            endedTime = at;
            ending = what;
        }
    }

    private void edited(Fact.In in) {
        long number = in.number();
        String type = in.text(), id = in.text();
        long at = in.number();
        String by = in.text();
        if (since == Fact.NONE || isUnseen || grantedAt <= unseenUpto) {
            report.leftOut(Report.Invariant.I7, "edits under grants whose life is not known");
            return;
        }
        report.judged(Report.Invariant.I7);
        long over = until == Fact.NONE ? Long.MAX_VALUE : until;
        if (endedTime != Fact.NONE) {
            over = Math.min(over, endedTime);
        }
        if (at >= since && at < over - cut.clockBackUs && !cut.isExcepted(type, id, by, at)) {
            report.broken(Report.Invariant.I7, number, "%s/%s was changed by %s at %s%s while fence %d (%s) covered it, from %s to %s", type, id, by, time(at),
                    number == Fact.NONE ? "" : ", as number " + number + " tells,", fence, lease, time(since), time(over));
        }
    }

    @Override
    void end() {}
}
