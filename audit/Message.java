import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/** A message of an input topic, as its sender wrote it: by the schemas, and by nobody's parser but this one. */
final class Message {
    static final ObjectMapper JSON = JsonMapper.builder().enable(JsonParser.Feature.STRICT_DUPLICATE_DETECTION).build();

    /** The grant that a command, or one item of it, names. lease: of an item. */
    record Grant(String lease, String holder, long fence, String claimId, String token) {}

    String kind, command, subject, source, id; // null: it is no command
    Grant grant;
    List<Grant> items = List.of();
    boolean hasItems;
    List<String> resources = List.of();
    List<String> tables = List.of();
    boolean isWaiting;
    byte[] digest; // of key, value and headers

    static Message of(ConsumerRecord<byte[], byte[]> record) {
        Message message = new Message();
        Header[] headers = record.headers().toArray();
        message.digest = digest(record.key(), record.value(), Arrays.asList(headers));
        try {
            message.parse(record, headers);
        } catch (java.io.IOException | RuntimeException notACommand) {
            message.kind = message.command = message.subject = message.source = message.id = null;
        }
        return message;
    }

    private void parse(ConsumerRecord<byte[], byte[]> record, Header[] headers) throws java.io.IOException {
        if (record.value() == null) {
            return;
        }
        JsonNode value = JSON.readTree(record.value());
        JsonNode data;
        String type;
        String binaryType = header(headers, "ce_type");
        if (binaryType != null) {
            type = binaryType;
            subject = header(headers, "ce_subject");
            source = header(headers, "ce_source");
            id = header(headers, "ce_id");
            data = value;
        } else {
            type = text(value, "type");
            subject = text(value, "subject");
            source = text(value, "source");
            id = text(value, "id");
            data = value.path("data");
        }
        int dot = type == null ? -1 : type.lastIndexOf('.');
        if (dot < 0) {
            return;
        }
        kind = type.substring(0, dot);
        command = type.substring(dot + 1);
        String holder = text(data, "holder");
        grant = grantOf(data, null, holder);
        if (data.path("items").isArray()) {
            hasItems = true;
            items = new ArrayList<>();
            for (JsonNode item : data.get("items")) {
                items.add(grantOf(item, text(item, "lease"), holder));
            }
        }
        resources = texts(data.path("resources"));
        tables = data.path("more").asBoolean() ? texts(data.path("tables")) : List.of();
        isWaiting = data.path("wait_ms").asLong() > 0;
    }

    private static Grant grantOf(JsonNode node, String lease, String holder) {
        JsonNode fence = node.path("fence");
        return new Grant(lease, holder, fence.isIntegralNumber() && fence.canConvertToLong() ? fence.asLong() : Fact.NONE,
                text(node, "claim_id"), text(node, "token"));
    }

    static String text(JsonNode node, String name) {
        JsonNode member = node.get(name);
        return member != null && member.isTextual() ? member.asText() : null;
    }

    private static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(one -> texts.add(one.asText()));
        return texts;
    }

    static String header(Header[] headers, String name) {
        for (int i = headers.length - 1; i >= 0; i--) {
            if (headers[i].key().equals(name) && headers[i].value() != null) {
                return new String(headers[i].value(), StandardCharsets.UTF_8);
            }
        }
        return null;
    }

    /** 16 bytes that tell records apart; null and empty differ. */
    static byte[] digest(byte[] key, byte[] value, List<Header> headers) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            part(digest, key);
            part(digest, value);
            for (Header header : headers) {
                part(digest, header.key().getBytes(StandardCharsets.UTF_8));
                part(digest, header.value());
            }
            return Arrays.copyOf(digest.digest(), 16);
        } catch (java.security.NoSuchAlgorithmException never) {
            throw new IllegalStateException(never);
        }
    }

    private static void part(MessageDigest digest, byte[] bytes) {
        digest.update(ByteBuffer.allocate(4).putInt(bytes == null ? -1 : bytes.length).flip());
        if (bytes != null) {
            digest.update(bytes);
        }
    }
}
