import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

/** What the command line, and the environment behind it, ask for. */
final class Options {
    static final String HELP = """
            usage: lease-audit [options]

            Reads what went into Leasehold and what came out, and says of each invariant I1-I11 whether it holds, or the first counterexample by
            journal number. It only reads; it may run beside coordinators that work. It shares no code with them: its Kafka client is Kafka's own,
            its driver is pgjdbc.

              lease-audit --brokers kafka:9092 --database 'host=db dbname=lease user=auditor password=...'
              lease-audit --file-server 'host=files dbname=files user=auditor' --root /srv/files -o json > books.json

            exit codes: 0 no invariant is broken, 1 one is, 2 it could not look (and says why on standard error), 64 wrong usage

            WHERE TO LOOK
              --brokers LIST            host:port[,host:port...]                                    (LEASE_BROKERS)
              --database CONNINFO       the coordinator's database; key=value pairs or postgresql://   (LEASE_DATABASE)
              --topic-prefix TEXT       what stands before every topic's name                        (LEASE_TOPIC_PREFIX)
              -X NAME=VALUE             a property of Kafka's Java client, for example security.protocol=SSL; may be repeated
              --kafka-config FILE       a file of such properties
              --gate CONNINFO           a database with the SQL gate (lease_gate); may be repeated. The coordinator's own is looked at if it has one
              --file-server CONNINFO    a database with the file server's tables (fileserver), and its gate
              --root DIR                the file server's disk; with --file-server
              --token-key-file FILE     the coordinators' token key; may be repeated (current, previous)  (LEASE_TOKEN_KEY_FILE, LEASE_TOKEN_KEY)
              --text FILE               a log, a page of metrics: a text that must hold no token; may be repeated
              --schema NAME             one more schema of the database whose readable tables must hold no token; may be repeated

            HOW
              --memory SIZE             what it may take: 512m, 2g; default 512m, at least 128m. It refuses to begin with less left on the machine
              --temp DIR                where it sorts what does not fit; about 2 KB for each message while it runs (default: /tmp)
              --wait SECONDS            how long to wait for a relay that does not get on; default 10. Outputs are then judged up to where it is
              -o table|json             for people, or for programs
              --quiet                   no progress on standard error
              --help, --version

            THE CUT. One snapshot of the database fixes the journal's head H, the consumed offsets and what the tables say. Inputs are judged up
            to these offsets. Then it waits until the relay has published H, fixes the ends of the output topics, and judges them up to P: H, or
            as far as the relay came. What happens meanwhile is behind the cut. What retention took away is not judged, and counted as left out:
            inputs, rows of the journal, records and tokens that are there no more. Times are the coordinator's database's own.

            WHAT IS JUDGED
              I1   fences rise along the grants of a lease, and of every resource that messages, waiting starts and items name; a fence belongs to one
                   claim and a claim to one fence, in the journal and on lease.grants, also in a history that a failover left behind
              I2   a grant of a lease or a resource follows the end of the one before it in the journal; renewals, steps and covers come while the
                   grant lives, by what its holder was told; no lapse comes before that expiry; the table says what the journal says, of leases and
                   of stamps on resources that are no rows of guarded tables. (Database times between two rows of the journal are nobody's to see.)
              I3   every command of a holder that changed something named the last grant's holder, fence, claim and token (which lease.grants
                   tells, or the key makes), also for each of many items; a late finish came before anybody else got a resource; a lease in the table
                   is its last grant's, and changed by a row of the journal only
              I4   each consumed message has one answer or dead letter, which names it; a dead letter is the message byte for byte; an answer over
                   many tells of each item. The journal is gapless but for jumps. lease.results, lease.grants and lease.dead-letters have each row
                   of it once, and nothing else; lease.state has the newest for each lease; records say what their rows say. A message's source and
                   id have one effect within the deduplication window. (A restore's lost history is known by its jump, and left alone.)
              I5   in every partition of lease.results (and of grants and dead letters) numbers rise but for repeats of what stood there before; a key's
                   records are in one partition
              I6   along the journal the offsets of an input partition do not fall; the database's next offset is above every one decided; it is not lower
                   when the audit ends
              I7   every edit of a guarded row that the guard recorded (lease.admitted_edits, and what finished runs were told) was made while its lease
                   did not live, or under an operator's exception; if the clock was set back, by as much as the journal shows less strictly. (An edit that no guard saw
                   leaves nothing to read: lease.guard_findings tells where a guard is not whole.)
              I8   nothing that was in progress without an expiry lapsed, or was granted, before an operator resolved it; an expiry of work under no
                   grant was given by an operator or the table it came from
              I9   no effect that a gate remembers is above the gate's highest fence, nor of two claims; along a file's life fences do not fall; a file
                   is settled once, and accounts use what their files have. On the disk: a moved file's fence had begun on it, and nothing is left of
                   a file that was settled and whose item was finished by its worker. (Of other gates in programs nothing can be read.)
              I10  no row of the journal changes a lease behind its end, unless its name came back after lease.kinds.keep_final; the table agrees
              I11  no token that lease.grants tells, or the key makes of a claim in the journal, stands as 64 digits in lease.results, lease.state, a text
                   column of the journal's view, a readable table of the schemas lease, lease_gate and fileserver, pg_stat_activity, or a --text

            RIGHTS. Database: a login with the role lease_reader. Brokers: READ and DESCRIBE on the inputs, lease.results, lease.grants, lease.state
            and lease.dead-letters; no group. Gate and file server: SELECT on their tables (the roles lease_gate_user, fileserver_user). The inputs,
            lease.grants and dead letters hold tokens: so does --temp while it runs, in files of its owner's only.
            """;

    String brokers = System.getenv("LEASE_BROKERS");
    String database = System.getenv("LEASE_DATABASE");
    String prefix = System.getenv().getOrDefault("LEASE_TOPIC_PREFIX", "");
    final Properties kafka = new Properties();
    final List<String> gates = new ArrayList<>();
    final List<Path> texts = new ArrayList<>();
    final List<String> schemas = new ArrayList<>();
    final Tokens tokens = new Tokens();
    String fileServer;
    Path root;
    Path temp = Path.of(System.getProperty("java.io.tmpdir"));
    long waitMs = 10_000;
    boolean isJson, isQuiet;

    /** Wrong usage: exit code 64. */
    static final class Usage extends Exception {
        private static final long serialVersionUID = 1;

        Usage(String what) {
            super(what);
        }
    }

    static Options of(String[] words) throws Usage, Unusable {
        Options options = new Options();
        try {
            options.parse(words);
            options.keysOfEnvironment(List.of(words).contains("--token-key-file"));
        } catch (IOException | GeneralSecurityException problem) {
            throw new Unusable(problem.toString());
        }
        if (options.brokers == null || options.database == null) {
            throw new Usage("--brokers and --database say where to look");
        }
        if (options.root != null && options.fileServer == null) {
            throw new Usage("--root goes with --file-server");
        }
        options.kafka.putIfAbsent("bootstrap.servers", options.brokers);
        return options;
    }

    private void parse(String[] words) throws Usage, IOException, GeneralSecurityException {
        for (int i = 0; i < words.length; i++) {
            String word = words[i], value = null;
            int equals = word.indexOf('=');
            if (word.startsWith("--") && equals > 0) {
                value = word.substring(equals + 1);
                word = word.substring(0, equals);
            }
            if (word.equals("--quiet")) {
                isQuiet = true;
                continue;
            }
            if (value == null) {
                if (++i == words.length) {
                    throw new Usage(word + " needs a value, or is no option");
                }
                value = words[i];
            }
            take(word, value);
        }
    }

    private void take(String word, String value) throws Usage, IOException, GeneralSecurityException {
        switch (word) {
            case "--brokers" -> brokers = value;
            case "--database" -> database = value;
            case "--topic-prefix" -> prefix = value;
            case "--gate" -> gates.add(value);
            case "--file-server" -> fileServer = value;
            case "--root" -> root = Path.of(value);
            case "--token-key-file" -> addKey(Files.readAllBytes(Path.of(value)));
            case "--text" -> texts.add(Path.of(value));
            case "--schema" -> schemas.add(value);
            case "--temp" -> temp = Path.of(value);
            case "--memory" -> { } // the launcher's: it is given to the machine that runs this
            case "--wait" -> waitMs = (long) (Double.parseDouble(value) * 1000);
            case "--kafka-config" -> {
                try (java.io.InputStream in = Files.newInputStream(Path.of(value))) {
                    kafka.load(in);
                }
            }
            case "-X" -> {
                String[] pair = value.split("=", 2);
                if (pair.length < 2) {
                    throw new Usage("-X takes NAME=VALUE");
                }
                kafka.put(pair[0], pair[1]);
            }
            case "-o" -> {
                if (!value.equals("table") && !value.equals("json")) {
                    throw new Usage("-o takes table or json");
                }
                isJson = value.equals("json");
            }
            default -> throw new Usage("unknown option " + word);
        }
    }

    /** As the coordinator reads a key: without the newline at the end of its file. */
    private void addKey(byte[] bytes) throws GeneralSecurityException {
        int size = bytes.length;
        while (size > 0 && (bytes[size - 1] == '\n' || bytes[size - 1] == '\r')) {
            size--;
        }
        tokens.addKey(java.util.Arrays.copyOf(bytes, size));
    }

    private void keysOfEnvironment(boolean isGiven) throws IOException, GeneralSecurityException {
        String key = System.getenv("LEASE_TOKEN_KEY"), file = System.getenv("LEASE_TOKEN_KEY_FILE");
        if (!isGiven && file != null) {
            addKey(Files.readAllBytes(Path.of(file)));
        } else if (!isGiven && key != null) {
            addKey(key.getBytes(java.nio.charset.StandardCharsets.UTF_8));
        }
    }
}
