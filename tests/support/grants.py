"""What the topic lease.grants has told: the newest grant of each lease.

Newest is what has the highest fence: grants to two holders of one lease lie in two partitions, and are read in either order.
"""


class Grants:
    def __init__(self, place, kind=None, kept=None):
        """Of one kind or of all; of the `kept` leases that were granted last, or of all."""
        self.reader = place.reader("lease.grants")
        self.kind, self.kept = kind, kept
        self.newest = {}        # (kind, lease) → grant; what was granted last comes last

    def read(self, wait):
        """Takes what is there within `wait` seconds; returns the grants that were found to be replaced."""
        self.reader.poll(wait)
        replaced = [older for record in self.reader.records if self.kind in (None, record.value["kind"])
                    for older in self._keep_newer(record.value)]
        self.reader.forget()
        for lease in list(self.newest)[:-self.kept] if self.kept else ():
            del self.newest[lease]
        return replaced

    def _keep_newer(self, grant):
        lease = (grant["kind"], grant["lease"])
        older, self.newest[lease] = sorted((self.newest.pop(lease, grant), grant), key=lambda one: one["fence"])
        return [older] if older["fence"] < self.newest[lease]["fence"] else []
