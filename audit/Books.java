import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/** All of them, and the order in which they are gone through: some learn from others. */
final class Books {
    private static final int COUNT = 8;

    final PlaceBook places;
    final MessageBook messages;
    final LeaseBook leases;
    final FenceBook fences;
    final ClaimBook claims;
    final ResourceBook resources;
    final NumberBook numbers;
    final TokenBook tokens;

    /** memory: what all of them may take together. */
    Books(Cut cut, Report report, Path folder, long memory, Tokens keys) {
        long budget = memory / COUNT;
        tokens = new TokenBook(cut, report, folder, budget);
        numbers = new NumberBook(cut, report, folder, budget);
        resources = new ResourceBook(cut, report, folder, budget);
        claims = new ClaimBook(cut, report, folder, budget, keys, tokens);
        fences = new FenceBook(cut, report, folder, budget, resources);
        leases = new LeaseBook(cut, report, folder, budget);
        messages = new MessageBook(cut, report, folder, budget, fences);
        places = new PlaceBook(cut, report, folder, budget, this);
    }

    void run(Progress progress) throws IOException {
        for (Book book : List.of(places, messages, leases, fences, claims, resources, numbers, tokens)) {
            progress.say("judging %,d facts by %s", book.facts.count(), book.getClass().getSimpleName());
            book.run();
        }
    }
}
