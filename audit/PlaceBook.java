import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * By the place of a message (topic, partition, offset): the message, the journal's rows that came of it, and what the output topics have of it.
 * I4: one answer or dead letter; the answer names the message; many items are each answered; a dead letter is the message byte for byte.
 * It knows what each command said, and passes that on to where it is compared with the grant (I3), and the resources to their book (I1, I2).
 */
final class PlaceBook extends Book {
    private static final int MESSAGE = 0, ROW = 1, ITEMS = 2, LETTER = 3;

    record Item(String lease, String outcome, long fence, String claimId, long until) {}

    record Items(long number, List<Item> items) {}

    record Letter(long number, byte[] digest) {}

    private final Books books;
    private String topic;
    private long partition, offset;
    private Message message;
    private final List<Row> rows = new ArrayList<>();
    private final List<Items> told = new ArrayList<>();
    private final List<Letter> letters = new ArrayList<>();

    PlaceBook(Cut cut, Report report, Path folder, long budget, Books books) {
        super("places", cut, report, folder, budget);
        this.books = books;
    }

    private Fact.Out at(String topic, long partition, long offset, int type) {
        return out.start().key(topic).number(partition).number(offset).type(type);
    }

    void message(String topic, long partition, long offset, Message one) throws IOException {
        at(topic, partition, offset, MESSAGE).raw(one.digest);
        for (String text : new String[] {one.kind, one.command, one.subject, one.source, one.id}) {
            out.text(text);
        }
        out.flag(one.grant != null);
        if (one.grant != null) {
            put(one.grant);
        }
        out.flag(one.hasItems).flag(one.isWaiting).number(one.items.size());
        for (Message.Grant item : one.items) {
            put(item);
        }
        put(one.resources);
        put(one.tables);
        add();
    }

    private void put(Message.Grant grant) {
        out.text(grant.lease()).text(grant.holder()).number(grant.fence()).text(grant.claimId()).text(grant.token());
    }

    private void put(List<String> texts) {
        out.number(texts.size());
        texts.forEach(out::text);
    }

    void row(Row row) throws IOException {
        at(row.topic, row.partition, row.offset, ROW).number(row.number);
        row.put(out);
        add();
    }

    void items(String topic, long partition, long offset, Items items) throws IOException {
        at(topic, partition, offset, ITEMS).number(items.number).number(items.items.size());
        for (Item item : items.items) {
            out.text(item.lease).text(item.outcome).number(item.fence).text(item.claimId).number(item.until);
        }
        add();
    }

    void letter(String topic, long partition, long offset, long number, byte[] digest) throws IOException {
        at(topic, partition, offset, LETTER).number(number).raw(digest);
        add();
    }

    private static Message.Grant grant(Fact.In in) {
        return new Message.Grant(in.text(), in.text(), in.number(), in.text(), in.text());
    }

    @Override
    void take(Fact.In in) throws IOException {
        String itsTopic = in.key();
        long itsPartition = in.number(), itsOffset = in.number();
        if (!itsTopic.equals(topic) || itsPartition != partition || itsOffset != offset) {
            end();
            topic = itsTopic;
            partition = itsPartition;
            offset = itsOffset;
        }
        switch (in.type()) {
            case MESSAGE -> {
                message = new Message();
                message.digest = in.raw(16);
                message.kind = in.text();
                message.command = in.text();
                message.subject = in.text();
                message.source = in.text();
                message.id = in.text();
                message.grant = in.flag() ? grant(in) : null;
                message.hasItems = in.flag();
                message.isWaiting = in.flag();
                message.items = new ArrayList<>();
                for (long left = in.number(); left > 0; left--) {
                    message.items.add(grant(in));
                }
                message.resources = in.texts();
                message.tables = in.texts();
            }
            case ROW -> {
                in.number();
                rows.add(Row.get(in));
            }
            case ITEMS -> {
                long number = in.number();
                List<Item> items = new ArrayList<>();
                for (long left = in.number(); left > 0; left--) {
                    items.add(new Item(in.text(), in.text(), in.number(), in.text(), in.number()));
                }
                told.add(new Items(number, items));
            }
            default -> letters.add(new Letter(in.number(), in.raw(16)));
        }
    }

    @Override
    void end() throws IOException {
        if (topic != null) {
            judge(new Cut.Partition(topic, (int) partition));
        }
        message = null;
        rows.clear();
        told.clear();
        letters.clear();
    }

    private String here() {
        return topic + "/" + partition + "@" + offset;
    }

    private void judge(Cut.Partition place) throws IOException {
        if (message == null) {
            withoutMessage(place);
            return;
        }
        List<Row> answers = new ArrayList<>();
        for (Row row : rows) {
            if (!(message.hasItems && Row.ENDS.contains(row.event))) {
                answers.add(row);
            }
        }
        if (answers.isEmpty()) {
            Long oldest = cut.firstOrigins.get(place);
            if (cut.isWhole || oldest != null && offset > oldest) {
                report.judged(Report.Invariant.I4);
                report.broken(Report.Invariant.I4, rows.isEmpty() ? Fact.NONE : rows.get(0).number,
                        "%s was consumed (up to %d) and has no answer", here(), cut.consumed.get(place));
            } else {
                report.leftOut(Report.Invariant.I4, "messages older than what the journal still has");
            }
            return;
        }
        report.judged(Report.Invariant.I4);
        Row answer = answers.get(0);
        if (answers.size() > 1) {
            report.broken(Report.Invariant.I4, answers.get(1).number, "%s was answered at number %d (%s) and again at number %d (%s)", here(), answer.number,
                    answer.event, answers.get(1).number, answers.get(1).event);
        }
        for (Row row : rows) {
            compareNames(row);
        }
        if (answer.is("dead_letter")) {
            compareLetter(answer);
        }
        if (message.kind != null && message.command.equals("start") && message.isWaiting && !message.resources.isEmpty()) {
            books.messages.waits(message, answer.number);
        }
        for (Row row : rows) {
            whoSaid(row);
            covers(row);
        }
        if (answer.is("answered")) {
            compareItems(answer);
        }
    }

    private void withoutMessage(Cut.Partition place) {
        if (rows.isEmpty()) {
            return;
        }
        for (Row row : rows) {
            if (row.is("answered") && "renew".equals(row.command)) {
                books.fences.renewedUnseen(row.number);
            }
        }
        if (cut.isGone(place, offset) || !cut.ends.containsKey(place)) {
            report.leftOut(Report.Invariant.I4, "answers to messages that the topics no longer have");
        } else if (offset >= cut.ends.get(place)) {
            report.leftOut(Report.Invariant.I4, "messages behind the end of their partition: the topic was cut, or made anew");
        } else if (offset < cut.consumed.getOrDefault(place, 0L)) {
            report.judged(Report.Invariant.I4);
            report.broken(Report.Invariant.I4, rows.get(0).number, "number %d answers %s, which was never sent", rows.get(0).number, here());
        }
    }

    private void compareNames(Row row) {
        if (message.id != null && row.id != null && !(message.id.equals(row.id) && message.source.equals(row.source))) {
            report.broken(Report.Invariant.I4, row.number, "number %d answers %s and names message %s of %s, which is %s of %s", row.number, here(), row.id,
                    row.source, message.id, message.source);
        }
    }

    private void compareLetter(Row answer) {
        for (Letter letter : letters) {
            if (letter.number == answer.number && !Arrays.equals(letter.digest, message.digest) && (answer.field == null || !answer.field.startsWith("cut"))) {
                report.broken(Report.Invariant.I4, answer.number, "dead letter %d is not %s byte for byte", answer.number, here());
            }
        }
    }

    /** A command that changed something must have named the grant; whether it was the last one, the lease's book knows. */
    private void whoSaid(Row row) throws IOException {
        if (!row.isHolders()) {
            return;
        }
        Message.Grant said = message.grant;
        if (message.hasItems) {
            said = message.items.stream().filter(item -> row.subject.equals(item.lease())).findFirst().orElse(null);
        }
        if (message.kind == null || said == null) {
            report.judged(Report.Invariant.I3);
            report.broken(Report.Invariant.I3, row.number, "number %d: %s of %s was %s by %s, which names no grant of it", row.number, row.command,
                    row.lease(), row.event, here());
            return;
        }
        books.leases.said(row.kind, row.subject, row.number, row.event, said, Fact.NONE);
        if (said.claimId() != null) {
            books.claims.said(said.claimId(), said.token(), row.number, row.event + " " + row.lease());
        }
    }

    private void covers(Row row) throws IOException {
        boolean isStart = row.is("granted") && "start".equals(row.command);
        if (row.fence == Fact.NONE || !(isStart || row.is("covered"))) {
            return;
        }
        for (String resource : message.resources) {
            books.fences.covers(row.fence, row.number, resource, false);
        }
        if (isStart) {
            for (String table : message.tables) {
                books.fences.covers(row.fence, row.number, table + "/*", true);
            }
        }
    }

    private void compareItems(Row answer) throws IOException {
        Items items = told.stream().filter(one -> one.number == answer.number).findFirst().orElse(null);
        if (items == null) {
            if ("renew".equals(answer.command)) {
                for (Message.Grant item : message.items) {
                    if (item.fence() > 0) {
                        books.fences.renewedUnseen(item.fence(), answer.number);
                    }
                    if (item.lease() != null) {
                        books.leases.renewedUnseen(answer.kind, item.lease(), answer.number);
                    }
                }
            }
            return;
        }
        boolean isSame = items.items.size() == message.items.size();
        for (int i = 0; isSame && i < items.items.size(); i++) {
            isSame = items.items.get(i).lease().equals(message.items.get(i).lease());
        }
        if (!isSame) {
            report.broken(Report.Invariant.I4, answer.number, "number %d tells of other items than %s names", answer.number, here());
            return;
        }
        Map<String, String> ended = new HashMap<>();
        for (Row row : rows) {
            if (Row.ENDS.contains(row.event)) {
                ended.put(row.subject, row.event);
            }
        }
        for (int i = 0; i < items.items.size(); i++) {
            Item item = items.items.get(i);
            Message.Grant said = message.items.get(i);
            String row = ended.remove(item.lease());
            String due = Row.ENDS.contains(item.outcome()) ? item.outcome() : null;
            if (!java.util.Objects.equals(row, due)) {
                report.broken(Report.Invariant.I4, answer.number, "number %d says that %s was %s; the journal has %s of it", answer.number, item.lease(),
                        item.outcome(), row == null ? "no row" : "the row " + row);
            }
            if (item.outcome().equals("renewed")) {
                books.leases.said(answer.kind, item.lease(), answer.number, "renewed", said, item.until());
                books.fences.renewed(item.fence(), answer.number, answer.at, item.until(), answer.kind + "/" + item.lease());
                if (said.claimId() != null) {
                    books.claims.said(said.claimId(), said.token(), answer.number, "renewed " + answer.kind + "/" + item.lease());
                }
            }
        }
        ended.forEach((lease, event) -> report.broken(Report.Invariant.I4, answer.number, "%s was %s by %s, and its answer, number %d, does not say so",
                lease, event, here(), answer.number));
    }
}
