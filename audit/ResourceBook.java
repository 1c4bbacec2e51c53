import java.io.IOException;
import java.nio.file.Path;

/**
 * By resource: who took it, in the journal's order. I1: fences rise. I2: whoever had it before was over. I3: a late finish comes before
 * anybody else was granted one of its resources.
 */
final class ResourceBook extends Book {
    private static final int TAKEN = 0, STAMP = 1;

    private String resource, lease;
    private long number, fence, endedAt, finishedAt;

    ResourceBook(Cut cut, Report report, Path folder, long budget) {
        super("resources", cut, report, folder, budget);
    }

    void taken(String resource, long number, long fence, long endedAt, long finishedAt, String lease) throws IOException {
        out.start().key(resource).number(number).type(TAKEN).number(fence).number(endedAt).number(finishedAt).text(lease);
        add();
    }

    /** What the database says now of a resource of its own. */
    void stamp(String resource, long fence) throws IOException {
        out.start().key(resource).number(Fact.LAST).type(STAMP).number(fence);
        add();
    }

    @Override
    void take(Fact.In in) {
        String its = in.key();
        if (!its.equals(resource)) {
            resource = its;
            number = Fact.NONE;
        }
        long itsNumber = in.number();
        if (in.type() == STAMP) {
            long stamp = in.number();
            if (number != Fact.NONE && endedAt == Fact.LAST) {
                report.judged(Report.Invariant.I2);
                if (stamp != fence) {
                    report.broken(Report.Invariant.I2, number, "%s is covered by fence %d (%s, number %d), and its stamp is %s: another start could take it",
                            resource, fence, lease, number, stamp == Fact.NONE ? "gone" : "fence " + stamp);
                }
            }
            return;
        }
        long itsFence = in.number();
        long itsEnd = in.number(), itsFinish = in.number();
        String itsLease = in.text();
        report.judged(Report.Invariant.I1);
        if (number != Fact.NONE && itsFence != fence) {
            if (itsFence < fence) {
                report.broken(Report.Invariant.I1, itsNumber, "%s: fence %d (%s) at number %d is not above %d (%s) at number %d", resource, itsFence, itsLease,
                        itsNumber, fence, lease, number);
            }
            report.judged(Report.Invariant.I2);
            if (endedAt > itsNumber) {
                report.broken(Report.Invariant.I2, itsNumber, "%s: %s took it with fence %d at number %d while %s had it with fence %d since number %d, which %s",
                        resource, itsLease, itsFence, itsNumber, lease, fence, number,
                        endedAt == Fact.LAST ? "has not ended" : "ended at number " + endedAt + " only");
            }
            if (finishedAt != Fact.LAST && finishedAt > itsNumber) {
                report.judged(Report.Invariant.I3);
                report.broken(Report.Invariant.I3, finishedAt, "%s was finished at number %d under fence %d, although %s had been granted %s since, at number %d",
                        lease, finishedAt, fence, itsLease, resource, itsNumber);
            }
        }
        number = itsNumber;
        fence = itsFence;
        endedAt = itsEnd;
        finishedAt = itsFinish;
        lease = itsLease;
    }

    @Override
    void end() {}
}
