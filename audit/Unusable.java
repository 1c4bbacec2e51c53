/** Why an audit could not look: exit code 2. */
final class Unusable extends Exception {
    private static final long serialVersionUID = 1;

    Unusable(String why) {
        super(why);
    }
}
