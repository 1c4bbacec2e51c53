"""A place with a coordinator, as the people of a story see it: they send commands, and read answers and grants."""
import books


class Stage:
    """A place with one coordinator, and the words to play a story on it."""

    def __init__(self, place, **settings):
        self.place = place
        self.coordinator = place.coordinator(**settings).start()
        self.events = place.events()
        self.results = place.reader("lease.results")
        self.grants = place.reader("lease.grants")
        self.state = place.reader("lease.state")
        self.dead_letters = place.reader("lease.dead-letters")

    def ask(self, kind, command, subject, data, **options):
        """Sends a command and returns the value of its answer."""
        origin = self.events.place_of(kind, command, subject, data, **options)
        return self.answer_to(origin, subject)

    def answer_to(self, origin, subject=None):
        """The answer to the message at `origin`. With its subject: what became of many items may stand under their own names too."""
        def answers(record):
            told = record.value.get("origin")
            return told is not None and (subject is None or record.value["lease"] == subject) and (told["topic"].endswith(origin[0]), told["partition"],
                                         told["offset"]) == (True, *origin[1:])

        return self.results.wait_for(answers, what=f"the answer to {origin}").value

    def grant(self, fence):
        """The grant with that fence, as its holder gets it."""
        return self.grants.wait_for(lambda record: record.value["fence"] == fence, what=f"the grant of fence {fence}").value

    def event(self, name, kind, lease, after=0):
        """The first event of a lease that answers no message."""
        return self.results.wait_for(
            lambda record: record.headers["ce_type"].decode() == f"{kind}.{name}" and record.value["lease"] == lease
            and record.value["number"] > after, what=f"{kind}.{name} of {lease}").value

    def as_holder(self, grant, **more):
        return dict({name: grant[name] for name in ("holder", "fence", "claim_id", "token")}, **more)

    def balance(self):
        self.place.wait_idle()
        return books.balance(books.collect(self.place, texts=self.texts()))

    def texts(self):
        return {"the coordinator's log": self.coordinator.log_text(), "/metrics": self.coordinator.get("/metrics")[1],
                "/readyz": self.coordinator.get("/readyz")[1]}
