import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartition;

/** Takes the first half of every partition away, as retention would: DeleteRecords BROKERS TOPIC ... (Python's client cannot.) */
public class DeleteRecords {
    public static void main(String[] words) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", words[0]);
        List<String> topics = List.of(words).subList(1, words.length);
        try (Admin admin = Admin.create(properties)) {
            Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
            for (TopicDescription topic : admin.describeTopics(topics).allTopicNames().get().values()) {
                topic.partitions().forEach(one -> asked.put(new TopicPartition(topic.name(), one.partition()), OffsetSpec.latest()));
            }
            Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
            for (Map.Entry<TopicPartition, ListOffsetsResult.ListOffsetsResultInfo> end : admin.listOffsets(asked).all().get().entrySet()) {
                before.put(end.getKey(), RecordsToDelete.beforeOffset(end.getValue().offset() / 2));
            }
            admin.deleteRecords(before).all().get();
        }
    }
}
