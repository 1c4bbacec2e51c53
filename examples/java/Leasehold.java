import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What the three examples share: how to send a command, and how to read records. */
final class Leasehold {
    static final ObjectMapper JSON = new ObjectMapper();
    static final String SOURCE = "/examples/java";

    private Leasehold() {}

    static String setting(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : value;
    }

    static String topic(String name) {
        return setting("LEASE_TOPIC_PREFIX", "") + name;
    }

    static Properties connection() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", setting("LEASE_BROKERS", "localhost:9092"));
        return properties;
    }

    /** Kafka's own default partitioner and idempotence are what is wanted: a key's commands stay in order, in one partition. */
    static KafkaProducer<String, String> producer() {
        return new KafkaProducer<>(connection(), new StringSerializer(), new StringSerializer());
    }

    /** Queues a command and returns its id. Sent again under the same id it is answered `duplicate` and changes nothing. */
    static String send(KafkaProducer<String, String> to, String kind, String command, String subject, ObjectNode data) {
        String id = UUID.randomUUID().toString();
        ObjectNode event = JSON.createObjectNode()
                .put("specversion", "1.0").put("id", id).put("source", SOURCE).put("type", kind + "." + command)
                .put("subject", subject).put("datacontenttype", "application/json");
        event.set("data", data);
        String topic = topic(command.equals("renew") ? "lease.renewals" : kind + ".events");
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, subject, event.toString());
        record.headers().add("content-type", "application/cloudevents+json".getBytes(StandardCharsets.UTF_8));
        to.send(record, (place, problem) -> {
            if (problem != null) {
                System.err.println("not delivered: " + id + ": " + problem.getMessage());
            }
        });
        return id;
    }

    /** One record of lease.results or lease.grants. */
    record Record(String topic, String key, JsonNode value) {}

    /** Records, each once: repeats and marks are left out. */
    static final class Records implements AutoCloseable {
        private final KafkaConsumer<String, String> consumer;
        private final Map<TopicPartition, Long> last = new HashMap<>(); // the last journal number seen there
        private final Queue<Record> read = new ArrayDeque<>();

        Records(boolean fromEnd, String... topics) {
            Properties properties = connection();
            properties.put("enable.auto.commit", "false");
            properties.put("auto.offset.reset", "none");
            properties.put("fetch.max.wait.ms", "50");
            consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
            List<TopicPartition> places = new ArrayList<>();
            for (String topic : topics) {
                consumer.partitionsFor(topic(topic)).forEach(found -> places.add(new TopicPartition(found.topic(), found.partition())));
            }
            consumer.assign(places);
            // Fixed now, not when the consumer gets round to it.
            (fromEnd ? consumer.endOffsets(places) : consumer.beginningOffsets(places)).forEach(consumer::seek);
        }

        /** The next record, or null when the wait is over. */
        Record next(Duration wait) throws Exception {
            if (read.isEmpty()) {
                for (ConsumerRecord<String, String> record : consumer.poll(wait)) {
                    keep(record);
                }
            }
            return read.poll();
        }

        private void keep(ConsumerRecord<String, String> record) throws Exception {
            if (record.headers().lastHeader("lease_mark") != null) {
                return;
            }
            TopicPartition place = new TopicPartition(record.topic(), record.partition());
            long number = Long.parseLong(new String(record.headers().lastHeader("lease_number").value(), StandardCharsets.UTF_8));
            if (number <= last.getOrDefault(place, 0L)) {
                return; // a repeat after a crash
            }
            last.put(place, number);
            String name = record.topic().substring(setting("LEASE_TOPIC_PREFIX", "").length());
            read.add(new Record(name, record.key(), JSON.readTree(record.value())));
        }

        @Override
        public void close() {
            consumer.close();
        }
    }
}
