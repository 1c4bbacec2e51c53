import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/** Takes the records of the output topics in: what they say, to be compared with the journal, and what only they know. */
final class Outputs {
    static final List<String> TOPICS = List.of("lease.results", "lease.grants", "lease.state", "lease.dead-letters");

    private final Cut cut;
    private final Report report;
    private final Books books;
    private final String prefix;
    private final Map<Cut.Partition, Long> highest = new HashMap<>();

    Outputs(Cut cut, Report report, Books books, String prefix) {
        this.cut = cut;
        this.report = report;
        this.books = books;
        this.prefix = prefix;
    }

    /** Microseconds; Fact.NONE for what is no time. */
    static long us(String time) {
        try {
            return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.parse(time));
        } catch (java.time.DateTimeException noTime) {
            return Fact.NONE;
        }
    }

    private static long number(String text) {
        try {
            return text == null ? Fact.NONE : Long.parseLong(text);
        } catch (NumberFormatException noNumber) {
            return Fact.NONE;
        }
    }

    private static long number(JsonNode value, String name) {
        JsonNode member = value.get(name);
        return member != null && member.isIntegralNumber() ? member.asLong() : Fact.NONE;
    }

    private static long time(JsonNode value, String name) {
        String text = Message.text(value, name);
        return text == null ? Fact.NONE : us(text);
    }

    private String topic(String name) {
        return name != null && name.startsWith(prefix) ? name.substring(prefix.length()) : name;
    }

    void take(Cut.Partition place, ConsumerRecord<byte[], byte[]> record) throws Exception {
        Header[] headers = record.headers().toArray();
        boolean isLetter = Message.header(headers, "lease_dlq_at") != null;
        boolean isScanned = place.topic().equals("lease.results") || place.topic().equals("lease.state");
        long number = number(Message.header(headers, "lease_number"));
        if (isScanned) {
            scan(place, record, headers, number);
        }
        if (Message.header(headers, "lease_mark") != null && !isLetter) {
            return;
        }
        if (number == Fact.NONE) {
            report.broken(Report.Invariant.I5, Fact.NONE, "%s@%d has no journal number", place, record.offset());
            return;
        }
        cut.firstNumbers.putIfAbsent(place, number);
        boolean isLate = number <= highest.getOrDefault(place, 0L);
        highest.merge(place, number, Math::max);
        String key = record.key() == null ? null : new String(record.key(), StandardCharsets.UTF_8);
        String said;
        if (place.topic().equals("lease.dead-letters")) {
            said = letter(record, headers, number);
        } else {
            JsonNode value;
            try {
                value = Message.JSON.readTree(record.value() == null ? new byte[0] : record.value());
            } catch (java.io.IOException noJson) {
                value = Message.JSON.createObjectNode();
            }
            said = switch (place.topic()) {
                case "lease.results" -> result(number, key, value);
                case "lease.grants" -> grant(number, key, value);
                default -> state(number, key, value);
            };
            if (number(value, "number") != number) {
                said = "number " + number(value, "number") + "\n" + said;
            }
        }
        books.numbers.found(place.topic(), number, place.number(), record.offset(), isLate, said);
    }

    private void scan(Cut.Partition place, ConsumerRecord<byte[], byte[]> record, Header[] headers, long number) throws Exception {
        report.judged(Report.Invariant.I11);
        String where = place + "@" + record.offset();
        books.tokens.look(record.key(), number, where);
        books.tokens.look(record.value(), number, where);
        for (Header header : headers) {
            books.tokens.look(header.value(), number, where);
        }
    }

    private String result(long number, String key, JsonNode value) throws Exception {
        JsonNode origin = value.path("origin"), command = value.path("command");
        String topic = topic(Message.text(origin, "topic"));
        String outcome = Message.text(value, "outcome");
        if ("answered".equals(outcome) && topic != null) {
            items(number, topic, origin, value.path("items"));
        }
        return new Row.Said().say("key", key).say("outcome", outcome).say("kind", Message.text(value, "kind")).say("lease", Message.text(value, "lease"))
                .say("fence", number(value, "fence")).say("claim_id", Message.text(value, "claim_id")).say("holder", Message.text(value, "holder"))
                .say("since", time(value, "since")).say("until", time(value, "until")).say("state", Message.text(value, "state"))
                .say("min_fence", number(value, "min_fence")).say("attempt", number(value, "attempt")).say("step", Message.text(value, "step"))
                .say("reason", Message.text(value, "reason")).say("field", Message.text(value, "field")).say("source", Message.text(command, "source"))
                .say("id", Message.text(command, "id")).say("topic", topic).say("partition", number(origin, "partition"))
                .say("offset", number(origin, "offset")).toString();
    }

    private void items(long number, String topic, JsonNode origin, JsonNode items) throws Exception {
        List<PlaceBook.Item> told = new ArrayList<>();
        for (JsonNode item : items) {
            told.add(new PlaceBook.Item(item.path("lease").asText(), item.path("outcome").asText(), number(item, "fence"), Message.text(item, "claim_id"),
                    time(item, "until")));
        }
        books.places.items(topic, number(origin, "partition"), number(origin, "offset"), new PlaceBook.Items(number, told));
    }

    private String grant(long number, String key, JsonNode value) throws Exception {
        String claimId = Message.text(value, "claim_id"), lease = Message.text(value, "kind") + "/" + Message.text(value, "lease");
        long fence = number(value, "fence");
        String token = Message.text(value, "token");
        if (claimId != null && fence > 0) {
            books.fences.grantRecord(number, fence, claimId, lease);
            books.claims.granted(claimId, fence, number);
            if (token != null) {
                books.claims.token(claimId, token, number);
            }
        }
        return new Row.Said().say("key", key).say("kind", Message.text(value, "kind")).say("lease", Message.text(value, "lease"))
                .say("holder", Message.text(value, "holder")).say("fence", fence).say("claim_id", claimId).say("since", time(value, "since"))
                .say("until", time(value, "until")).say("attempt", number(value, "attempt")).say("step", Message.text(value, "step")).toString();
    }

    private String state(long number, String key, JsonNode value) throws Exception {
        int slash = key == null ? -1 : key.indexOf('/');
        if (slash > 0) {
            books.leases.record(key.substring(0, slash), key.substring(slash + 1), number);
        }
        return new Row.Said().say("key", key).say("kind", Message.text(value, "kind")).say("lease", Message.text(value, "lease"))
                .say("state", Message.text(value, "state")).say("fence", number(value, "fence")).say("min_fence", number(value, "min_fence"))
                .say("claim_id", Message.text(value, "claim_id")).say("holder", Message.text(value, "holder")).say("since", time(value, "since")).toString();
    }

    /** The original's headers come first, ours behind them, always the same ones in the same order. */
    private String letter(ConsumerRecord<byte[], byte[]> record, Header[] headers, long number) throws Exception {
        int own = headers.length;
        for (String name : List.of("lease_epoch", "lease_number", "lease_dlq_at", "kafka_dlt-original-topic", "lease_dlq_offset", "lease_dlq_partition",
                "lease_dlq_topic", "lease_dlq_detail", "lease_dlq_reason")) {
            if (own > 0 && headers[own - 1].key().equals(name)) {
                own--;
            }
        }
        Header[] ours = Arrays.copyOfRange(headers, own, headers.length);
        String topic = topic(Message.header(ours, "lease_dlq_topic"));
        long partition = number(Message.header(ours, "lease_dlq_partition")), offset = number(Message.header(ours, "lease_dlq_offset"));
        if (topic != null && partition >= 0 && offset >= 0) {
            books.places.letter(topic, partition, offset, number, Message.digest(record.key(), record.value(), Arrays.asList(headers).subList(0, own)));
        }
        return new Row.Said().say("reason", Message.header(ours, "lease_dlq_reason")).say("topic", topic).say("partition", partition).say("offset", offset).toString();
    }
}
