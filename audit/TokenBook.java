import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/** By what looks like a token. I11: none that was given out stands where we looked. Which texts are looked at is said by those who read them. */
final class TokenBook extends Book {
    private static final int KNOWN = 0, FOUND = 1;
    private static final int SIZE = 64;
    private static final int WINDOWS_MAX = 1000; // of one long run of hexadecimal digits

    private String token;
    private boolean isKnown;

    TokenBook(Cut cut, Report report, Path folder, long budget) {
        super("tokens", cut, report, folder, budget);
    }

    void known(String token) throws IOException {
        out.start().key(token).type(KNOWN);
        add();
    }

    void look(String text, long number, String where) throws IOException {
        if (text != null && text.length() >= SIZE) {
            look(text.getBytes(StandardCharsets.UTF_8), number, where);
        }
    }

    /** Every piece of 64 digits 0-9 a-f in a row. */
    void look(byte[] text, long number, String where) throws IOException {
        if (text == null) {
            return;
        }
        int start = 0, windows = 0;
        for (int i = 0; i <= text.length; i++) {
            if (i < text.length && (text[i] >= '0' && text[i] <= '9' || text[i] >= 'a' && text[i] <= 'f')) {
                if (i + 1 - start >= SIZE && windows++ < WINDOWS_MAX) {
                    out.start().key(new String(text, i + 1 - SIZE, SIZE, StandardCharsets.US_ASCII)).type(FOUND).number(number == Fact.NONE ? Fact.LAST : number)
                            .text(where);
                    add();
                }
            } else {
                start = i + 1;
                windows = 0;
            }
        }
    }

    @Override
    void take(Fact.In in) {
        String its = in.key();
        if (!its.equals(token)) {
            token = its;
            isKnown = false;
        }
        if (in.type() == KNOWN) {
            isKnown = true;
        } else if (isKnown) {
            long number = in.number();
            report.broken(Report.Invariant.I11, number == Fact.LAST ? Fact.NONE : number, "a token stands in %s", in.text());
        }
    }

    @Override
    void end() {}
}
