import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Utils;

/**
 * By journal number, for each output topic: what the journal wants there, and what stands there. I4: each row once, and it says the same.
 * I5: a record that comes behind a higher number in its partition is only ever a repeat; a key's records are in its partition.
 * Of lease.state only what it says: what it must have is the book of leases' affair.
 */
final class NumberBook extends Book {
    private static final int DUE = 0, KEPT = 1, LATE = 2;

    private record Found(boolean isLate, int partition, long offset, String said) {}

    private String topic;
    private long number;
    private String due, key;
    private final List<Found> found = new ArrayList<>();

    NumberBook(Cut cut, Report report, Path folder, long budget) {
        super("numbers", cut, report, folder, budget);
    }

    void due(String topic, long number, String key, String said) throws IOException {
        out.start().key(topic).number(number).type(DUE).text(key).text(said);
        add();
    }

    /** isLate: its number is not above that of a record before it in the partition. */
    void found(String topic, long number, int partition, long offset, boolean isLate, String said) throws IOException {
        out.start().key(topic).number(number).type(isLate ? LATE : KEPT).number(partition).number(offset).text(said);
        add();
    }

    @Override
    void take(Fact.In in) {
        String itsTopic = in.key();
        long itsNumber = in.number();
        if (!itsTopic.equals(topic) || itsNumber != number) {
            end();
            topic = itsTopic;
            number = itsNumber;
        }
        int type = in.type();
        if (type == DUE) {
            key = in.text();
            due = in.text();
        } else {
            found.add(new Found(type == LATE, (int) in.number(), in.number(), in.text()));
        }
    }

    @Override
    void end() {
        if (topic != null && number <= cut.published && number >= cut.first && !(due == null && cut.isLost(number))) {
            judge();
        }
        due = key = null;
        found.clear();
    }

    private void judge() {
        boolean isState = topic.equals("lease.state");
        Found kept = null;
        for (Found one : found) {
            if (!one.isLate) {
                if (kept != null && !isState) {
                    report.broken(Report.Invariant.I4, number, "%s has number %d twice, in partitions %d and %d", topic, number, kept.partition, one.partition);
                }
                kept = one;
            }
        }
        Found any = kept != null ? kept : found.isEmpty() ? null : found.get(0);
        if (due == null) {
            report.judged(Report.Invariant.I4);
            report.broken(Report.Invariant.I4, number, "%s/%d@%d has number %d, which the journal does not have for it", topic, any.partition, any.offset, number);
            return;
        }
        if (any == null) {
            missing();
            return;
        }
        report.judged(Report.Invariant.I4);
        if (!any.said.equals(due)) {
            report.broken(Report.Invariant.I4, number, "number %d in %s/%d@%d %s", number, topic, any.partition, any.offset, Row.difference(due, any.said));
        }
        if (!isState) {
            order();
        }
    }

    private int partitionOfKey() {
        int count = cut.partitions.get(topic);
        return key == null ? (int) (number % count) : Utils.toPositive(Utils.murmur2(key.getBytes(java.nio.charset.StandardCharsets.UTF_8))) % count;
    }

    /** Is it that the topic keeps its records for a while only? */
    private boolean mayBeExpired() {
        if (topic.equals("lease.dead-letters")) { // a reader is not told their keys
            for (int partition = 0; partition < cut.partitions.get(topic); partition++) {
                if (isExpired(partition)) {
                    return true;
                }
            }
            return false;
        }
        return isExpired(partitionOfKey());
    }

    private boolean isExpired(int partition) {
        Cut.Partition place = new Cut.Partition(topic, partition);
        return cut.begins.getOrDefault(place, 0L) > 0 && number < cut.firstNumbers.getOrDefault(place, Fact.LAST);
    }

    private void missing() {
        if (topic.equals("lease.state")) {
            return;
        }
        if (mayBeExpired()) {
            report.leftOut(Report.Invariant.I4, "rows whose records " + topic + " no longer keeps");
            return;
        }
        report.judged(Report.Invariant.I4);
        report.broken(Report.Invariant.I4, number, "%s lacks number %d: %s", topic, number, due.replace('\n', ' ').trim());
    }

    private void order() {
        for (Found one : found) {
            report.judged(Report.Invariant.I5);
            if (!topic.equals("lease.dead-letters") && one.partition != partitionOfKey()) {
                report.broken(Report.Invariant.I5, number, "number %d of %s stands in partition %d, and its key's is %d", number, topic, one.partition, partitionOfKey());
            }
            if (one.isLate && !wasThereBefore(one)) {
                report.broken(Report.Invariant.I5, number, "%s/%d@%d has number %d behind a higher one, and it was not there before: its readers lose it", topic,
                        one.partition, one.offset, number);
            }
        }
    }

    private boolean wasThereBefore(Found late) {
        for (Found one : found) {
            if (one.partition == late.partition && one.offset < late.offset) {
                return true;
            }
        }
        return isExpired(late.partition);
    }
}
