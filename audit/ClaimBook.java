import java.io.IOException;
import java.nio.file.Path;

/** By claim id. I1: it has one fence. I3: who changed something had its token: the one that lease.grants tells, or that the key makes. */
final class ClaimBook extends Book {
    private static final int GRANT = 0, TOKEN = 1, SAID = 2;

    private final Tokens keys;
    private final TokenBook tokens;
    private String claimId, token;
    private long fence, number;

    ClaimBook(Cut cut, Report report, Path folder, long budget, Tokens keys, TokenBook tokens) {
        super("claims", cut, report, folder, budget);
        this.keys = keys;
        this.tokens = tokens;
    }

    void granted(String claimId, long fence, long number) throws IOException {
        out.start().key(claimId).type(GRANT).number(number).number(fence);
        add();
    }

    void token(String claimId, String token, long number) throws IOException {
        out.start().key(claimId).type(TOKEN).number(number).text(token);
        add();
    }

    void said(String claimId, String token, long number, String what) throws IOException {
        out.start().key(claimId).type(SAID).number(number).text(token).text(what);
        add();
    }

    @Override
    void take(Fact.In in) throws IOException {
        String its = in.key();
        if (!its.equals(claimId)) {
            claimId = its;
            token = null;
            fence = Fact.NONE;
            if (!keys.isEmpty()) {
                for (String derived : keys.of(its)) {
                    tokens.known(derived);
                }
            }
        }
        int type = in.type();
        long itsNumber = in.number();
        if (type == GRANT) {
            long itsFence = in.number();
            report.judged(Report.Invariant.I1);
            if (fence != Fact.NONE && itsFence != fence) {
                report.broken(Report.Invariant.I1, itsNumber, "claim %s has fence %d at number %d and fence %d at number %d", its, fence, number, itsFence, itsNumber);
            }
            fence = itsFence;
            number = itsNumber;
        } else if (type == TOKEN) {
            token = in.text();
            tokens.known(token);
        } else {
            String said = in.text(), what = in.text();
            if (token == null && keys.isEmpty()) {
                report.leftOut(Report.Invariant.I3, "tokens of grants that lease.grants no longer has (--token-key-file)");
                return;
            }
            report.judged(Report.Invariant.I3);
            if (!(token != null && token.equals(said)) && !(keys.isEmpty() ? false : keys.of(its).contains(said))) {
                report.broken(Report.Invariant.I3, itsNumber, "%s at number %d, by a command whose token is not that of claim %s", what, itsNumber, its);
            }
        }
    }

    @Override
    void end() {}
}
