import java.util.Set;

/** A row of the journal, as the view lease.timeline tells it. Times are microseconds since 1970. Numbers that are null are Fact.NONE. */
final class Row {
    static final Set<String> HOLDER_COMMANDS = Set.of("cover", "begin", "renew", "advance", "finish", "fail", "release");
    static final Set<String> CHANGES = Set.of("granted", "covered", "renewed", "advanced", "finished", "failed", "released");
    static final Set<String> ENDS = Set.of("finished", "failed", "released");
    static final Set<String> FINAL_STATES = Set.of("finished", "failed", "dead");
    private static final Set<String> INTERNAL = Set.of("dead_letter", "jumped", "restated", "excepted", "exception_ended");

    long number, at, partition, offset, fence, since, until, minFence, attempt, previous;
    String event, kind, subject, command, source, id, topic, holder, claimId, state, step, reason, field;
    boolean changesLease, isGrant;

    boolean is(String name) {
        return event.equals(name);
    }

    /** Whether a holder's command changed something. */
    boolean isHolders() {
        return command != null && HOLDER_COMMANDS.contains(command) && CHANGES.contains(event);
    }

    /** Whether it tells of a lapse, and not of a command that came too late for its lease. */
    boolean isLapse() {
        return command == null && (is("lapsed") || is("dead"));
    }

    boolean isResolved() {
        return "resolve".equals(command) && CHANGES.contains(event);
    }

    /** Whether it tells of a lease that is its subject. */
    boolean isOfLease() {
        return kind != null && subject != null
                && (isGrant || changesLease || isHolders() || isResolved() || isLapse() || is("imported") || is("requested"));
    }

    boolean isFinal() {
        return changesLease && !is("restated") && state != null && FINAL_STATES.contains(state);
    }

    boolean isDueInResults() {
        return kind != null && subject != null && !INTERNAL.contains(event);
    }

    boolean isDueInGrants() {
        return isGrant && kind != null && subject != null && holder != null && claimId != null;
    }

    boolean isDueInState() {
        return changesLease && kind != null && subject != null;
    }

    String lease() {
        return kind + "/" + subject;
    }

    String place() {
        return topic + "/" + partition + "@" + offset;
    }

    void put(Fact.Out out) {
        out.value(number).value(at).value(partition).value(offset).value(fence).value(since).value(until).value(minFence).value(attempt)
                .value(previous);
        for (String text : new String[] {event, kind, subject, command, source, id, topic, holder, claimId, state, step, reason, field}) {
            out.text(text);
        }
        out.flag(changesLease).flag(isGrant);
    }

    static Row get(Fact.In in) {
        Row row = new Row();
        row.number = in.value();
        row.at = in.value();
        row.partition = in.value();
        row.offset = in.value();
        row.fence = in.value();
        row.since = in.value();
        row.until = in.value();
        row.minFence = in.value();
        row.attempt = in.value();
        row.previous = in.value();
        row.event = in.text();
        row.kind = in.text();
        row.subject = in.text();
        row.command = in.text();
        row.source = in.text();
        row.id = in.text();
        row.topic = in.text();
        row.holder = in.text();
        row.claimId = in.text();
        row.state = in.text();
        row.step = in.text();
        row.reason = in.text();
        row.field = in.text();
        row.changesLease = in.flag();
        row.isGrant = in.flag();
        return row;
    }

    // What a record of each output topic must say of this row, in the words of Outputs.said.

    String inResults() {
        return new Said().say("key", subject).say("outcome", event).say("kind", kind).say("lease", subject).say("fence", fence).say("claim_id", claimId)
                .say("holder", holder).say("since", since).say("until", until).say("state", state).say("min_fence", minFence).say("attempt", attempt)
                .say("step", step).say("reason", reason).say("field", field).say("source", id == null ? null : source)
                .say("id", source == null ? null : id).say("topic", topic).say("partition", partition).say("offset", offset).toString();
    }

    String inGrants() {
        return new Said().say("key", holder).say("kind", kind).say("lease", subject).say("holder", holder).say("fence", fence).say("claim_id", claimId)
                .say("since", since).say("until", until).say("attempt", attempt).say("step", step).toString();
    }

    String inState() {
        return new Said().say("key", lease()).say("kind", kind).say("lease", subject).say("state", state).say("fence", fence).say("min_fence", minFence)
                .say("claim_id", claimId).say("holder", holder).say("since", since).toString();
    }

    String inDeadLetters() {
        return new Said().say("reason", reason).say("topic", topic).say("partition", partition).say("offset", offset).toString();
    }

    /** Names and values, one a line; what is absent is left out. */
    static final class Said {
        private final StringBuilder text = new StringBuilder(256);

        Said say(String name, String value) {
            if (value != null) {
                text.append(name).append(' ').append(value.replace('\n', ' ')).append('\n');
            }
            return this;
        }

        Said say(String name, long value) {
            return value == Fact.NONE ? this : say(name, Long.toString(value));
        }

        @Override
        public String toString() {
            return text.toString();
        }
    }

    /** The first line that differs, from both. */
    static String difference(String journal, String topic) {
        String[] ours = journal.split("\n"), theirs = topic.split("\n");
        for (int i = 0; i < Math.max(ours.length, theirs.length); i++) {
            String our = i < ours.length ? ours[i] : "nothing", their = i < theirs.length ? theirs[i] : "nothing";
            if (!our.equals(their)) {
                return "says \"" + their + "\", the journal \"" + our + "\"";
            }
        }
        return "is the same";
    }
}
