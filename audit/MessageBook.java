import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/**
 * By the name of a message (source and id). I4: within the deduplication window it has one effect at most, wherever it was sent again.
 * A start that waited in line is granted later, by a row that names it: here it finds the resources.
 */
final class MessageBook extends Book {
    private static final int WAITS = 0, ANSWER = 1, SERVED = 2;

    private final FenceBook fences;
    private String source, id;
    private String kind, subject;
    private List<String> resources, tables;
    private boolean isAmbiguous;
    private long number, at;
    private String place, event;

    MessageBook(Cut cut, Report report, Path folder, long budget, FenceBook fences) {
        super("messages", cut, report, folder, budget);
        this.fences = fences;
    }

    void waits(Message message, long number) throws IOException {
        out.start().key(message.source).key(message.id).type(WAITS).number(number).text(message.kind).text(message.subject);
        for (List<String> texts : List.of(message.resources, message.tables)) {
            out.number(texts.size());
            texts.forEach(out::text);
        }
        add();
    }

    /** An answer that is more than a refusal to look at the command at all. */
    void answer(Row row) throws IOException {
        out.start().key(row.source).key(row.id).type(ANSWER).number(row.number).number(row.at).text(row.place()).text(row.event);
        add();
    }

    void served(Row row) throws IOException {
        out.start().key(row.source).key(row.id).type(SERVED).number(row.number).number(row.fence).text(row.kind).text(row.subject);
        add();
    }

    @Override
    void take(Fact.In in) throws IOException {
        String itsSource = in.key(), itsId = in.key();
        if (!itsSource.equals(source) || !itsId.equals(id)) {
            source = itsSource;
            id = itsId;
            resources = tables = null;
            isAmbiguous = false;
            place = null;
        }
        int type = in.type();
        long itsNumber = in.number();
        if (type == WAITS) {
            String itsKind = in.text(), itsSubject = in.text();
            List<String> itsResources = in.texts(), itsTables = in.texts();
            isAmbiguous |= resources != null && !(resources.equals(itsResources) && tables.equals(itsTables) && subject.equals(itsSubject));
            kind = itsKind;
            subject = itsSubject;
            resources = itsResources;
            tables = itsTables;
        } else if (type == ANSWER) {
            long itsAt = in.number();
            String itsPlace = in.text(), itsEvent = in.text();
            report.judged(Report.Invariant.I4);
            if (place != null && !place.equals(itsPlace) && itsAt - at < cut.dedupWindowUs) {
                report.broken(Report.Invariant.I4, itsNumber, "message %s of %s was decided twice: at number %d (%s, %s) and at number %d (%s, %s)", id, source,
                        number, place, event, itsNumber, itsPlace, itsEvent);
            }
            number = itsNumber;
            at = itsAt;
            place = itsPlace;
            event = itsEvent;
        } else {
            long fence = in.number();
            String itsKind = in.text(), itsSubject = in.text();
            if (resources != null && !isAmbiguous && itsKind.equals(kind) && itsSubject.equals(subject)) {
                for (String resource : resources) {
                    fences.covers(fence, itsNumber, resource, false);
                }
                for (String table : tables) {
                    fences.covers(fence, itsNumber, table + "/*", true);
                }
            }
        }
    }

    @Override
    void end() {}
}
