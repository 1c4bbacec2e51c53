import java.io.IOException;
import java.nio.file.Path;

/** Facts of one sort, and a pass over them in the order of their keys that keeps only what it needs of one key. */
abstract class Book {
    static final String I_HAVE_NO_GRANT = "the grant is older than what the journal still has";

    final Cut cut;
    final Report report;
    final Sorter facts;
    final Fact.Out out = new Fact.Out();

    Book(String name, Cut cut, Report report, Path folder, long budget) {
        this.cut = cut;
        this.report = report;
        this.facts = new Sorter(name, folder, budget);
    }

    void add() throws IOException {
        facts.add(out.done());
    }

    /** Takes all facts in. */
    void run() throws IOException {
        Sorter.Source source = facts.sorted();
        for (byte[] fact = source.next(); fact != null; fact = source.next()) {
            take(new Fact.In(fact));
        }
        end();
        facts.delete();
    }

    abstract void take(Fact.In in) throws IOException;

    /** The last key is over. */
    abstract void end() throws IOException;

    static String time(long us) {
        return us == Fact.NONE ? "no time" : us == Long.MAX_VALUE ? "without end"
                : java.time.Instant.EPOCH.plus(us, java.time.temporal.ChronoUnit.MICROS).toString();
    }
}
