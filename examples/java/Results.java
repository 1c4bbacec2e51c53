import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/** Prints the answers, and keeps a ledger behind a gate: what comes with an outdated fence has no effect. Results [SECONDS-IDLE] */
public final class Results {
    /** claim null: a floor, nobody was let in with that number yet. */
    record Seen(long fence, String claim) {}

    /** For each resource the highest fence that was let in. (A service keeps it beside the data, in the effect's transaction.) */
    static final class Gate {
        private final Map<String, Seen> highest = new HashMap<>();

        boolean admits(String resource, long fence, String claim) {
            Seen seen = highest.get(resource);
            if (seen != null && (fence < seen.fence() || fence == seen.fence() && seen.claim() != null && !claim.equals(seen.claim()))) {
                return false;
            }
            highest.put(resource, new Seen(fence, claim));
            return true;
        }

        /** Nobody below this comes in any more: the lease behind it has lapsed or ended. */
        void raiseFloor(String resource, long floor) {
            Seen seen = highest.get(resource);
            if (seen == null || floor > seen.fence()) {
                highest.put(resource, new Seen(floor, null));
            }
        }
    }

    public static void main(String[] words) throws Exception {
        long idleNs = words.length > 0 ? (long) (Double.parseDouble(words[0]) * 1e9) : Long.MAX_VALUE;
        Gate gate = new Gate();
        Map<String, JsonNode> ledger = new HashMap<>();
        try (Leasehold.Records records = new Leasehold.Records(false, "lease.results")) {
            long quietSince = System.nanoTime();
            while (System.nanoTime() - quietSince < idleNs) {
                Leasehold.Record record = records.next(Duration.ofMillis(200));
                if (record == null) {
                    continue;
                }
                quietSince = System.nanoTime();
                JsonNode answer = record.value();
                String lease = answer.get("kind").asText() + "/" + answer.get("lease").asText();
                String outcome = answer.get("outcome").asText();
                System.out.println(answer.get("number") + " " + outcome + " " + lease + " fence " + answer.path("fence").asText("-"));
                if (outcome.equals("finished") && gate.admits(lease, answer.get("fence").asLong(), answer.get("claim_id").asText())) {
                    ledger.put(lease, answer.path("result"));
                } else if (answer.has("min_fence")) {
                    gate.raiseFloor(lease, answer.get("min_fence").asLong());
                }
            }
        }
        System.out.println(ledger.size() + " finished");
    }
}
