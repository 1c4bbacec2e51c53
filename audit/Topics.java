import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads topics from their beginnings up to given ends, each partition in order, without a group. */
final class Topics implements AutoCloseable {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long SILENCE_MS = 60_000; // no record for so long: nobody answers

    interface Records {
        void take(Cut.Partition place, ConsumerRecord<byte[], byte[]> record) throws Exception;
    }

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String prefix;
    private final Progress progress;
    long records;

    Topics(Properties properties, String prefix, Progress progress) {
        Properties all = new Properties();
        all.put("client.id", "lease-audit");
        all.put("fetch.max.bytes", "4194304");
        all.put("max.partition.fetch.bytes", "1048576");
        all.put("max.poll.records", "2000");
        all.put("fetch.max.wait.ms", "50");
        all.put("isolation.level", "read_committed");
        all.putAll(properties);
        all.put("enable.auto.commit", "false");
        all.put("auto.offset.reset", "none");
        all.put("allow.auto.create.topics", "false");
        consumer = new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        this.prefix = prefix;
        this.progress = progress;
    }

    /** For Audit.loadClasses. */
    void load() {
        consumer.assign(List.of(new TopicPartition("nowhere", 0)));
        consumer.seek(new TopicPartition("nowhere", 0), 0);
        consumer.poll(POLL);
        consumer.listTopics(POLL);
    }

    private TopicPartition of(Cut.Partition place) {
        return new TopicPartition(prefix + place.topic(), place.number());
    }

    private Cut.Partition of(TopicPartition place) {
        return new Cut.Partition(place.topic().substring(prefix.length()), place.partition());
    }

    /** Notes where the partitions of the topics begin and end now. Topics that are not there are left out, and returned. */
    List<String> look(List<String> topics, Cut cut) {
        List<TopicPartition> places = new ArrayList<>();
        List<String> missing = new ArrayList<>();
        Map<String, List<PartitionInfo>> all = consumer.listTopics(Duration.ofSeconds(30));
        for (String topic : topics) {
            List<PartitionInfo> found = all.get(prefix + topic);
            if (found == null) {
                missing.add(topic);
                continue;
            }
            cut.partitions.put(topic, found.size());
            found.forEach(one -> places.add(new TopicPartition(one.topic(), one.partition())));
        }
        consumer.beginningOffsets(places).forEach((place, offset) -> cut.begins.put(of(place), offset));
        consumer.endOffsets(places).forEach((place, offset) -> cut.ends.put(of(place), offset));
        return missing;
    }

    void read(String what, Map<Cut.Partition, Long> upto, Cut cut, Records taker) throws Exception {
        Map<TopicPartition, Long> ends = new HashMap<>();
        long total = 0;
        for (Map.Entry<Cut.Partition, Long> one : upto.entrySet()) {
            long begin = cut.begins.getOrDefault(one.getKey(), 0L);
            if (one.getValue() > begin) {
                ends.put(of(one.getKey()), one.getValue());
                total += one.getValue() - begin;
            }
        }
        Set<TopicPartition> open = new HashSet<>(ends.keySet());
        consumer.assign(open);
        for (TopicPartition place : open) {
            consumer.seek(place, cut.begins.getOrDefault(of(place), 0L));
        }
        long before = records, heardAt = System.currentTimeMillis();
        while (!open.isEmpty()) {
            boolean isSilent = true;
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    isSilent = false;
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    if (record.offset() < ends.get(place)) {
                        records++;
                        taker.take(of(place), record);
                    }
                }
            } catch (OffsetOutOfRangeException expired) { // retention went on meanwhile
                consumer.beginningOffsets(expired.partitions()).forEach((place, offset) -> {
                    cut.begins.put(of(place), offset);
                    consumer.seek(place, offset);
                });
                isSilent = false;
            }
            if (open.removeIf(place -> consumer.position(place) >= ends.get(place))) {
                Set<TopicPartition> done = new HashSet<>(ends.keySet());
                done.removeAll(open);
                consumer.pause(done);
                isSilent = false;
            }
            heardAt = isSilent ? heardAt : System.currentTimeMillis();
            if (System.currentTimeMillis() - heardAt > SILENCE_MS) {
                throw new Unusable("the brokers have said nothing for " + SILENCE_MS / 1000 + " s; " + open + " are not read to their ends");
            }
            progress.tell("%,d of %,d records of the %s", records - before, total, what);
        }
    }

    @Override
    public void close() {
        consumer.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(Duration.ofSeconds(1)));
    }
}
