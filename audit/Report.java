import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** What is said of each invariant: how often it was judged, what could not be, and the first counterexample by journal number. */
final class Report {
    enum Invariant {
        I1("fences of successive grants of a resource rise, and no two claims share one"),
        I2("at most one live lease covers a resource; what lapsed is never live again"),
        I3("nobody but the last grant's holder, with its fence, claim id and token, changes anything"),
        I4("every consumed message has exactly one answer or dead letter, and one effect at most"),
        I5("records of a key stand in lease.results in the order in which they were decided"),
        I6("consumed offsets never go back"),
        I7("guarded columns of a row under a live lease do not change"),
        I8("work without an expiry is never taken automatically"),
        I9("no effect passes a gate below a fence that it admitted; quota is settled once"),
        I10("a final state is never left"),
        I11("no token stands in lease.results, lease.state, a table or a given text");

        final String meaning;

        Invariant(String meaning) {
            this.meaning = meaning;
        }
    }

    /** What was found out about one of them. */
    static final class Finding {
        long judged;
        long broken;
        long firstAt = Long.MAX_VALUE;
        String first;
        boolean isNotLookedAt;
        final Map<String, Long> leftOut = new LinkedHashMap<>(); // why → how often
    }

    private final Map<Invariant, Finding> findings = new EnumMap<>(Invariant.class);

    Report() {
        for (Invariant one : Invariant.values()) {
            findings.put(one, new Finding());
        }
    }

    Finding of(Invariant invariant) {
        return findings.get(invariant);
    }

    void judged(Invariant invariant) {
        findings.get(invariant).judged++;
    }

    /** number: where in the journal; Fact.NONE for what has no place there, which comes last. */
    void broken(Invariant invariant, long number, String how, Object... words) {
        Finding finding = findings.get(invariant);
        finding.broken++;
        long at = number == Fact.NONE ? Long.MAX_VALUE : number;
        if (finding.first == null || at < finding.firstAt) {
            finding.firstAt = at;
            finding.first = String.format(how, words);
        }
    }

    /** Something that cannot be judged from what is still there. */
    void leftOut(Invariant invariant, String why) {
        findings.get(invariant).leftOut.merge(why, 1L, Long::sum);
    }

    void notLookedAt(Invariant invariant, String why) {
        findings.get(invariant).isNotLookedAt = true;
        findings.get(invariant).leftOut.merge(why, 1L, Long::sum);
    }

    boolean isBroken() {
        return findings.values().stream().anyMatch(finding -> finding.broken > 0);
    }

    private static String verdict(Finding finding) {
        return finding.broken > 0 ? "broken" : finding.isNotLookedAt && finding.judged == 0 ? "not looked at" : "holds";
    }

    void print(java.io.PrintStream out) {
        findings.forEach((invariant, finding) -> {
            out.printf("%-4s %-14s %12d judged   %s%n", invariant, verdict(finding), finding.judged, invariant.meaning);
            if (finding.broken > 0) {
                out.printf("     first of %d: %s%n", finding.broken, finding.first);
            }
            finding.leftOut.forEach((why, times) -> out.printf("     left out: %s%s%n", why, times > 1 ? " (" + times + " times)" : ""));
        });
    }

    ObjectNode toJson(ObjectMapper json) {
        ObjectNode all = json.createObjectNode();
        findings.forEach((invariant, finding) -> {
            ObjectNode one = all.putObject(invariant.name());
            one.put("verdict", verdict(finding).replace(' ', '_')).put("judged", finding.judged).put("broken", finding.broken);
            if (finding.first != null) {
                one.put("counterexample", finding.first);
                if (finding.firstAt != Long.MAX_VALUE) {
                    one.put("number", finding.firstAt);
                }
            }
            ObjectNode leftOut = one.putObject("left_out");
            finding.leftOut.forEach(leftOut::put);
        });
        return all;
    }
}
