import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.clients.producer.KafkaProducer;

/** Sends one command for each subject: Producer cleanup.request file-1 file-2 */
public final class Producer {
    public static void main(String[] words) {
        if (words.length < 2 || !words[0].contains(".")) {
            System.err.println("usage: Producer KIND.COMMAND SUBJECT ...");
            System.exit(64);
        }
        String[] type = words[0].split("\\.", 2);
        try (KafkaProducer<String, String> to = Leasehold.producer()) {
            for (int i = 1; i < words.length; i++) {
                ObjectNode data = Leasehold.JSON.createObjectNode();
                System.out.println(words[i] + " " + Leasehold.send(to, type[0], type[1], words[i], data));
            }
        }
    }
}
