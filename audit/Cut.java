import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The consistent cut that everything is judged at. One snapshot of the database fixes the journal's head and the consumed offsets; the input
 * topics are read up to these offsets, the output topics up to ends that were fixed after everything up to `published` stood in them.
 */
final class Cut {
    record Partition(String topic, int number) {
        @Override
        public String toString() {
            return topic + "/" + number;
        }
    }

    record Kind(String kind, String mode, String covers, long keepFinalUs) {}

    record Exception(String type, Set<String> ids, String login, long from, long until) {}

    String takenAt;
    String server;
    long head; // the journal's last number in the snapshot
    long published; // outputs are judged up to this number
    long first = Fact.LAST; // the oldest number that the journal still has
    boolean isWhole; // nothing of the journal was dropped
    long dedupWindowUs;
    long clockBackUs; // the largest step back of the clock that a lease's rows show: each is decided behind the one before
    final Map<Partition, Long> consumed = new HashMap<>();
    final Map<Partition, Long> begins = new HashMap<>(); // of inputs and outputs
    final Map<Partition, Long> ends = new HashMap<>();
    final Map<Partition, Long> firstNumbers = new HashMap<>(); // of an output partition: its oldest record's
    final Map<Partition, Long> firstOrigins = new HashMap<>(); // of an input partition: the oldest offset that the journal names
    final Map<String, Integer> partitions = new HashMap<>(); // of an output topic
    final Map<String, Kind> kinds = new HashMap<>();
    final List<Exception> exceptions = new ArrayList<>();
    final List<long[]> lost = new ArrayList<>(); // numbers between these were given in a history that a jump left behind

    boolean isLost(long number) {
        for (long[] one : lost) {
            if (number > one[0] && number < one[1]) {
                return true;
            }
        }
        return false;
    }

    boolean isGone(Partition place, long offset) {
        return offset < begins.getOrDefault(place, 0L);
    }

    boolean isExcepted(String type, String id, String login, long at) {
        for (Exception one : exceptions) {
            if (one.type.equals(type) && one.login.equals(login) && at >= one.from && at <= one.until
                    && (one.ids == null || one.ids.contains(id))) {
                return true;
            }
        }
        return false;
    }
}
