import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.PriorityQueue;

/**
 * Sorts any number of facts in a bounded share of the memory: what does not fit is written to files, sorted, and merged at the end. This is
 * why an audit needs no more memory for a hundred million messages than for a thousand, but room in its folder.
 */
final class Sorter implements AutoCloseable {
    private static final int MERGED_AT_ONCE = 64;
    private static final int BUFFER = 1 << 15;
    private static final int OVERHEAD = 32; // of an array and of the reference to it

    interface Source {
        byte[] next() throws IOException; // null: no more
    }

    private final String name;
    private final Path folder;
    private final long budget;
    private List<byte[]> chunk = new ArrayList<>();
    private long chunkSize;
    private final List<Path> runs = new ArrayList<>();
    private final List<AutoCloseable> open = new ArrayList<>();
    private int runCount;
    private long count;

    Sorter(String name, Path folder, long budget) {
        this.name = name;
        this.folder = folder;
        this.budget = budget;
    }

    void add(byte[] fact) throws IOException {
        chunk.add(fact);
        chunkSize += fact.length + OVERHEAD;
        count++;
        if (chunkSize > budget) {
            Path run = nextRun();
            write(run, sortedChunk());
            runs.add(run);
        }
    }

    long count() {
        return count;
    }

    /** All facts in order; nothing is added any more. */
    Source sorted() throws IOException {
        while (runs.size() > MERGED_AT_ONCE) {
            List<Path> first = new ArrayList<>(runs.subList(0, MERGED_AT_ONCE));
            Path merged = nextRun();
            List<Source> sources = new ArrayList<>();
            for (Path run : first) {
                sources.add(read(run));
            }
            write(merged, merge(sources));
            close();
            for (Path run : first) {
                Files.delete(run);
            }
            runs.subList(0, MERGED_AT_ONCE).clear();
            runs.add(merged);
        }
        List<Source> sources = new ArrayList<>();
        for (Path run : runs) {
            sources.add(read(run));
        }
        sources.add(sortedChunk());
        return merge(sources);
    }

    private Path nextRun() {
        return folder.resolve(name + "." + runCount++);
    }

    private Source sortedChunk() {
        byte[][] facts = chunk.toArray(new byte[0][]);
        chunk = new ArrayList<>();
        chunkSize = 0;
        Arrays.sort(facts, Arrays::compareUnsigned);
        return new Source() {
            private int at;

            @Override
            public byte[] next() {
                if (at == facts.length) {
                    return null;
                }
                byte[] fact = facts[at];
                facts[at++] = null;
                return fact;
            }
        };
    }

    private static void write(Path path, Source source) throws IOException {
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path), BUFFER))) {
            for (byte[] fact = source.next(); fact != null; fact = source.next()) {
                out.writeInt(fact.length);
                out.write(fact);
            }
        }
    }

    private Source read(Path path) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(path), BUFFER));
        open.add(in);
        return () -> {
            int size;
            try {
                size = in.readInt();
            } catch (EOFException end) {
                return null;
            }
            return in.readNBytes(size);
        };
    }

    private record Head(byte[] fact, Source source) implements Comparable<Head> {
        @Override
        public int compareTo(Head other) {
            return Arrays.compareUnsigned(fact, other.fact);
        }
    }

    private static Source merge(List<Source> sources) throws IOException {
        if (sources.size() == 1) {
            return sources.get(0);
        }
        PriorityQueue<Head> heads = new PriorityQueue<>();
        for (Source source : sources) {
            byte[] fact = source.next();
            if (fact != null) {
                heads.add(new Head(fact, source));
            }
        }
        return () -> {
            Head head = heads.poll();
            if (head == null) {
                return null;
            }
            byte[] fact = head.source().next();
            if (fact != null) {
                heads.add(new Head(fact, head.source()));
            }
            return head.fact();
        };
    }

    /** Nothing of it is needed any more. */
    void delete() throws IOException {
        close();
        for (Path run : runs) {
            Files.deleteIfExists(run);
        }
    }

    @Override
    public void close() throws IOException {
        for (AutoCloseable one : open) {
            try {
                one.close();
            } catch (Exception problem) {
                throw new IOException(problem);
            }
        }
        open.clear();
    }
}
