/** Tells on standard error how far it is, where that takes long. */
final class Progress {
    private static final long EVERY_MS = 2000;

    private final boolean isQuiet;
    private long saidAt = System.currentTimeMillis();

    Progress(boolean isQuiet) {
        this.isQuiet = isQuiet;
    }

    void say(String how, Object... words) {
        saidAt = System.currentTimeMillis();
        if (!isQuiet) {
            System.err.printf("lease-audit: " + how + "%n", words);
        }
    }

    /** The same, every now and then. */
    void tell(String how, Object... words) {
        if (System.currentTimeMillis() - saidAt >= EVERY_MS) {
            say(how, words);
        }
    }
}
