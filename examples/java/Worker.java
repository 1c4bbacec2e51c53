import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.producer.KafkaProducer;

/** A worker of a pool: claims items with credit, works on them in threads, renews what gets on, stops what has lost its lease.
 *  Worker KIND [SECONDS-IDLE] */
public final class Worker {
    static final int THREADS = 4;
    static final long TTL_NS = 10_000_000_000L, MARGIN_NS = 500_000_000L, TTL_MS = TTL_NS / 1_000_000;

    /** One grant, and how long it is surely ours. (nanoTime stands still while the machine sleeps, and the lease does not: where that can
     *  happen, ask the gate before each effect, or a clock that goes on.) */
    static final class Item {
        final JsonNode grant;
        volatile long deadline, progressed = System.nanoTime();
        volatile boolean isLost;
        long renewalSentAt;

        Item(JsonNode grant, long deadline) {
            this.grant = grant;
            this.deadline = deadline;
        }

        /** To be asked before every effect. Once false it stays false. */
        boolean isMine() {
            if (System.nanoTime() - (deadline - MARGIN_NS) >= 0) {
                isLost = true;
            }
            return !isLost;
        }

        /** Work that says nothing is not renewed: it may be stuck, and others can do it. */
        boolean progress() {
            progressed = System.nanoTime();
            return isMine();
        }

        ObjectNode asHolder() {
            ObjectNode holder = Leasehold.JSON.createObjectNode();
            for (String name : new String[] {"holder", "fence", "claim_id", "token"}) {
                holder.set(name, grant.get(name));
            }
            return holder;
        }
    }

    /** Yours. Returns what is to stand in the result, or throws. */
    static ObjectNode work(Item item) throws Exception {
        for (int step = 0; step < 3; step++) {
            Thread.sleep(10);
            if (!item.progress()) {
                throw new IllegalStateException("the lease is lost");
            }
        }
        return Leasehold.JSON.createObjectNode().put("by", "java");
    }

    record Done(Item item, String command, ObjectNode data) {}

    final String kind;
    final String holder = "java-" + UUID.randomUUID().toString().substring(0, 8); // new in every process
    final Leasehold.Records records = new Leasehold.Records(true, "lease.grants", "lease.results"); // before the first claim
    final KafkaProducer<String, String> producer = Leasehold.producer();
    final ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    final Map<String, Item> items = new HashMap<>(), renewals = new HashMap<>();
    final Map<Long, Long> sentAt = new HashMap<>(); // refresh: when it was sent
    final Queue<Done> done = new ConcurrentLinkedQueue<>();
    long asked, granted, refresh, finished, claimedAt;
    volatile boolean isStopping;
    boolean hasClosed; // our demand

    Worker(String kind) {
        this.kind = kind;
    }

    String send(String command, String subject, ObjectNode data) {
        return Leasehold.send(producer, kind, command, subject, data);
    }

    /** Asks for what the threads have room for; says again, now and then, that we still want it; and at last, once, that we don't. */
    void claim() {
        long now = System.nanoTime();
        boolean isLast = isStopping;
        long wanted = Math.max(asked, granted + (isLast ? 0 : THREADS - items.size()));
        boolean isTold = isLast ? hasClosed : wanted == asked && now - claimedAt < TTL_NS / 4;
        if (isTold) {
            return;
        }
        hasClosed = isLast;
        asked = wanted; // a total of all claims so far; it never falls
        claimedAt = now;
        sentAt.put(++refresh, now);
        sentAt.remove(refresh - 100);
        send("claim", holder, Leasehold.JSON.createObjectNode().put("credit_total", asked).put("refresh", refresh)
                .put("ttl_ms", TTL_MS).put("wait_ms", isLast ? 0 : TTL_MS / 2));
    }

    void take(JsonNode grant) {
        granted++;
        Long sent = sentAt.get(grant.get("refresh").asLong());
        Item item = new Item(grant, (sent == null ? System.nanoTime() - TTL_NS : sent) + TTL_NS);
        items.put(grant.get("lease").asText(), item);
        threads.submit(() -> {
            if (!item.isMine()) { // it waited for too long, or answers a claim that we know nothing of
                done.add(new Done(item, "release", item.asHolder()));
                return;
            }
            try {
                ObjectNode said = item.asHolder();
                said.set("result", work(item));
                done.add(new Done(item, "finish", said));
            } catch (Exception problem) { // whatever it is: the item is tried again
                done.add(new Done(item, "fail", item.asHolder().put("reason", String.valueOf(problem.getMessage())).put("retry", true)));
            }
        });
    }

    /** Said under its grant, also if the lease has lapsed: done work counts if nobody else has begun it. */
    void settle() {
        for (Done one = done.poll(); one != null; one = done.poll()) {
            String lease = one.item().grant.get("lease").asText();
            items.remove(lease, one.item()); // and not the next grant of the same lease
            send(one.command(), lease, one.data());
            finished += one.command().equals("finish") ? 1 : 0;
        }
    }

    void renew() {
        long now = System.nanoTime();
        renewals.values().removeIf(item -> now - item.renewalSentAt > TTL_NS / 3); // unanswered: again
        for (Item item : items.values()) {
            boolean isDue = now - (item.deadline - TTL_NS * 2 / 3) > 0;
            if (isDue && item.isMine() && now - item.progressed < TTL_NS / 3 && !renewals.containsValue(item)) {
                item.renewalSentAt = now;
                renewals.put(send("renew", item.grant.get("lease").asText(), item.asHolder().put("ttl_ms", TTL_MS)), item);
            }
        }
    }

    void answered(JsonNode answer) {
        Item item = renewals.remove(answer.path("command").path("id").asText());
        if (item != null && answer.get("outcome").asText().equals("renewed") && item.isMine()) {
            item.deadline = item.renewalSentAt + TTL_NS;
        }
    }

    boolean turn() throws Exception {
        claim();
        renew();
        Leasehold.Record record = records.next(Duration.ofMillis(20));
        boolean isGrant = record != null && record.topic().equals("lease.grants") && record.key().equals(holder);
        if (isGrant) {
            take(record.value());
        } else if (record != null && record.topic().equals("lease.results")) {
            answered(record.value());
        }
        settle();
        return isGrant;
    }

    void serve(long idleNs) throws Exception {
        long quietSince = System.nanoTime();
        while (!isStopping && System.nanoTime() - quietSince < idleNs) {
            if (turn()) {
                quietSince = System.nanoTime();
            }
        }
        isStopping = true; // drain: ask for nothing more, end what is in hand
        long since = System.nanoTime();
        while (System.nanoTime() - since < (items.isEmpty() ? 1_000_000_000L : TTL_NS)) {
            turn();
        }
        threads.shutdown();
        producer.close(Duration.ofSeconds(10));
        records.close();
        System.out.println(holder + ": " + finished + " finished");
    }

    public static void main(String[] words) throws Exception {
        if (words.length < 1) {
            System.err.println("usage: Worker KIND [SECONDS-IDLE]");
            System.exit(64);
        }
        Worker worker = new Worker(words[0]);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            worker.isStopping = true;
            try {
                main.join(TTL_MS);
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        worker.serve(words.length > 1 ? (long) (Double.parseDouble(words[1]) * 1e9) : Long.MAX_VALUE);
    }
}
