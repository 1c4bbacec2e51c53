import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Stream;

/** lease-audit: the passes, in their order. Options.HELP says what for, and what is judged. */
public final class Audit {
    private static final int FORMAT = 1; // of -o json
    private static final int HOLDS = 0, BROKEN = 1, COULD_NOT_LOOK = 2, WRONG_USAGE = 64;
    private static final String RENEWALS = "lease.renewals";

    private final Options options;
    private final Progress progress;
    private final Cut cut = new Cut();
    private final Report report = new Report();
    private final Map<String, Long> read = new TreeMap<>();

    private Audit(Options options) {
        this.options = options;
        this.progress = new Progress(options.isQuiet);
    }

    public static void main(String[] words) {
        System.exit(run(words));
    }

    private static int run(String[] words) {
        if (words.length == 1 && words[0].equals("--load-classes")) {
            loadClasses();
            return HOLDS;
        }
        try {
            Audit audit = new Audit(Options.of(words));
            audit.look();
            audit.tell();
            return audit.report.isBroken() ? BROKEN : HOLDS;
        } catch (Options.Usage problem) {
            System.err.println("lease-audit: " + problem.getMessage() + "\nlease-audit --help tells what there is");
            return WRONG_USAGE;
        } catch (OutOfMemoryError problem) {
            System.err.println("lease-audit: could not look: the memory is too small; give it more with --memory");
        } catch (Unusable problem) {
            System.err.println("lease-audit: could not look: " + problem.getMessage());
        } catch (Exception problem) {
            System.err.println("lease-audit: could not look: " + problem);
            if (System.getenv("LEASE_AUDIT_TRACE") != null) {
                problem.printStackTrace();
            }
        }
        return COULD_NOT_LOOK;
    }

    /** Goes through as much as it can without a system: the launcher keeps what was loaded, so that later starts are quick. */
    private static void loadClasses() {
        Progress progress = new Progress(true);
        java.util.Properties nowhere = new java.util.Properties();
        nowhere.put("bootstrap.servers", "127.0.0.1:9");
        nowhere.put("default.api.timeout.ms", "200");
        nowhere.put("request.timeout.ms", "100");
        try (Topics topics = new Topics(nowhere, "", progress)) {
            Books books = new Books(new Cut(), new Report(), Path.of("/"), 1 << 20, new Tokens());
            books.numbers.due("lease.results", 1, "k", new Row.Said().say("a", 1).toString());
            Message.JSON.writerWithDefaultPrettyPrinter().writeValueAsString(Message.JSON.readTree("{\"a\":[1,\"b\"]}"));
            books.run(progress);
            topics.load();
        } catch (Exception expected) {
            // nobody is there
        }
        try {
            new Database("host=127.0.0.1 port=9 user=nobody").close();
        } catch (Exception expected) {
            // likewise
        }
    }

    private void look() throws Exception {
        Path folder = Files.createTempDirectory(options.temp, "lease-audit-", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        Thread sweeper = new Thread(() -> sweep(folder)); // also when it is interrupted
        Runtime.getRuntime().addShutdownHook(sweeper);
        try (Database database = new Database(options.database); Topics topics = new Topics(options.kafka, options.prefix, progress)) {
            Books books = new Books(cut, report, folder, Runtime.getRuntime().maxMemory() / 2, options.tokens);
            Journal journal = new Journal(database, options.prefix, cut, report, books, progress);
            journal.snapshot();
            journal.awaitPublished(options.waitMs);
            topics(topics, books);
            journal.read();
            read.put("journal_rows", journal.rows);
            Journal.scanTables(database, schemas(), report, books, progress);
            effects(database, books);
            texts(books);
            books.run(progress);
            progress.say("looking again at the consumed offsets");
            journal.lookAgain();
        } finally {
            sweep(folder);
        }
    }

    private void topics(Topics topics, Books books) throws Exception {
        List<String> inputs = new ArrayList<>();
        new TreeSet<>(cut.kinds.keySet()).forEach(kind -> inputs.add(kind + ".events"));
        inputs.add(RENEWALS);
        List<String> missing = topics.look(inputs, cut);
        if (!missing.isEmpty()) {
            progress.say("there are no topics %s", missing);
        }
        missing = topics.look(Outputs.TOPICS, cut);
        if (!missing.isEmpty()) {
            throw new Unusable("there are no topics " + missing + " (--topic-prefix is '" + options.prefix + "')");
        }
        Map<Cut.Partition, Long> upto = new TreeMap<>(java.util.Comparator.comparing(Cut.Partition::toString));
        cut.consumed.forEach((place, next) -> upto.put(place, Math.min(next, cut.ends.getOrDefault(place, 0L))));
        topics.read("inputs", upto, cut, (place, record) -> books.places.message(place.topic(), place.number(), record.offset(), Message.of(record)));
        read.put("messages", topics.records);
        upto.clear();
        cut.ends.forEach((place, end) -> {
            if (Outputs.TOPICS.contains(place.topic())) {
                upto.put(place, end);
            }
        });
        Outputs outputs = new Outputs(cut, report, books, options.prefix);
        topics.read("outputs", upto, cut, outputs::take);
        read.put("records", topics.records - read.get("messages"));
    }

    private List<String> schemas() {
        List<String> schemas = new ArrayList<>(List.of("lease", "lease_gate", "fileserver"));
        schemas.addAll(options.schemas);
        return schemas;
    }

    private void effects(Database database, Books books) throws Exception {
        Effects effects = new Effects(report, progress);
        boolean hasGate = false;
        if (database.has("lease_gate.resource")) {
            effects.gate(database);
            hasGate = true;
        }
        for (String gate : options.gates) {
            try (Database one = new Database(gate)) {
                effects.gate(one);
                Journal.scanTables(one, schemas(), report, books, progress);
            }
            hasGate = true;
        }
        if (options.fileServer != null) {
            try (Database one = new Database(options.fileServer)) {
                effects.gate(one);
                effects.fileServer(one);
                Journal.scanTables(one, schemas(), report, books, progress);
                if (options.root != null) {
                    Set<String> kinds = new TreeSet<>();
                    cut.kinds.values().stream().filter(kind -> "file".equals(kind.covers())).forEach(kind -> kinds.add(kind.kind()));
                    effects.disk(one, database, options.root, kinds);
                }
            }
        } else if (!hasGate) {
            report.notLookedAt(Report.Invariant.I9, "no gate was named (--gate, --file-server)");
        }
    }

    private void texts(Books books) throws IOException {
        byte[] line = new byte[1 << 16];
        for (Path text : options.texts) {
            try (InputStream in = Files.newInputStream(text)) {
                int kept = 0; // of the piece before: a token may lie across two
                for (int size = in.read(line, kept, line.length - kept); size > 0; size = in.read(line, kept, line.length - kept)) {
                    report.judged(Report.Invariant.I11);
                    byte[] piece = java.util.Arrays.copyOf(line, kept + size);
                    books.tokens.look(piece, Fact.NONE, text.toString());
                    kept = Math.min(63, piece.length);
                    System.arraycopy(piece, piece.length - kept, line, 0, kept);
                }
            }
        }
    }

    private static void sweep(Path folder) {
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : (Iterable<Path>) files::iterator) {
                Files.deleteIfExists(file);
            }
            Files.deleteIfExists(folder);
        } catch (IOException gone) {
            // done before
        }
    }

    private void tell() throws IOException {
        if (!options.isJson) {
            System.out.printf("cut: %s, %s; journal %s to %d, outputs up to %d%s; %,d messages, %,d journal rows, %,d records%n", cut.takenAt, cut.server,
                    cut.first == Fact.LAST ? "0" : Long.toString(cut.first), cut.head, cut.published, cut.published < cut.head ? " (the relay is behind)" : "",
                    read.get("messages"), read.get("journal_rows"), read.get("records"));
            report.print(System.out);
            return;
        }
        ObjectNode all = Message.JSON.createObjectNode();
        all.put("format", FORMAT).put("result", report.isBroken() ? "broken" : "holds");
        ObjectNode where = all.putObject("cut");
        where.put("at", cut.takenAt).put("server", cut.server).put("first_number", cut.first == Fact.LAST ? 0 : cut.first).put("head_number", cut.head)
                .put("published_number", cut.published);
        ObjectNode inputs = where.putObject("inputs"), outputs = where.putObject("outputs");
        new TreeMap<>(strings(cut.consumed)).forEach(inputs::put);
        cut.ends.forEach((place, end) -> {
            if (Outputs.TOPICS.contains(place.topic())) {
                outputs.put(place.toString(), end);
            }
        });
        ObjectNode counts = all.putObject("read");
        read.forEach(counts::put);
        all.set("invariants", report.toJson(Message.JSON));
        System.out.println(Message.JSON.writerWithDefaultPrettyPrinter().writeValueAsString(all));
    }

    private static Map<String, Long> strings(Map<Cut.Partition, Long> places) {
        Map<String, Long> named = new TreeMap<>();
        places.forEach((place, offset) -> named.put(place.toString(), offset));
        return named;
    }
}
