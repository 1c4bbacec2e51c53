"""What edits, runs and their looks at the rows did, as they saw it from outside, and a judge that knows nothing of the guard.

Every moment is the database's clock, read before a statement and after its commit: what happened did so in between. A lease surely
lives from the moment at which its start was known to the moment of its end; it may have lived from its grant until its end was known.
"""
import collections
import dataclasses
import typing

# code None: admitted; fence: whose lease refused it; how: statement, isolation level and count of rows, for whoever reads of a fault
Edit = collections.namedtuple("Edit", "rows began ended code fence how", defaults=(None,))
Look = collections.namedtuple("Look", "fence at values")                    # values: row -> value
Moments = collections.namedtuple("Moments", "began ended")                  # of a transaction on leases


@dataclasses.dataclass
class Life:
    """One lease: the rows that it covers, and when it lived."""
    fence: int
    rows: frozenset
    granted: float                # by its own word
    known: float                  # its start had been committed by then
    ended: float                  # end or expiry, by its own word
    expiry: float
    turned: typing.Optional[float] = None         # when somebody found it expired
    finish: typing.Optional[Moments] = None       # of a finish that was accepted
    basis: typing.Optional[str] = None            # what that finish was told
    in_hand: list = dataclasses.field(default_factory=list)      # its own commands

    def surely_lives(self, began, ended):
        """Lived all the time from began to ended."""
        return self.known < began and ended < self.ended

    def may_have_lived(self, began, ended):
        """Lived at one moment between, or was in somebody's hands."""
        spans = [Moments(self.granted, self.ended), *self.in_hand]
        return any(span.began <= ended and began <= span.ended for span in spans)


def faults(edits, looks, lives, transactions):
    """Every contradiction, as a sentence."""
    by_fence = {life.fence: life for life in lives}
    found = []
    for life in lives:    # who turned it over had it in hand; who looked at it before its expiry and commits after it may have
        life.in_hand += [one for one in transactions if one.began <= life.expiry <= one.ended
                         or life.turned is not None and one.began <= life.turned <= one.ended]
    for edit in edits:
        if edit.code is None:
            found += [f"row {row} was changed between {edit.began} and {edit.ended}, under the live lease {life.fence} ({life.known} to {life.ended})"
                      for life in lives if life.surely_lives(edit.began, edit.ended) for row in edit.rows if row in life.rows]
        elif edit.code == "LE010":
            life = by_fence.get(edit.fence)
            if life is None or not life.rows & set(edit.rows) or not life.may_have_lived(edit.began, edit.ended):
                found.append(f"an edit of {edit.rows} was refused between {edit.began} and {edit.ended} by {life}")
        elif edit.code != "40001":
            found.append(f"an edit of {edit.rows} met {edit.code}")
    first = {}
    for look in looks:
        life = by_fence[look.fence]
        if life.known <= look.at < life.ended:
            for row, value in look.values.items():
                if first.setdefault((look.fence, row), value) != value:
                    found.append(f"row {row} became {value} at {look.at}, under the live lease {look.fence}")
    for life in lives:
        found += faults_of_basis(life, edits)
    return found


def faults_of_basis(life, edits):
    """A run that finishes after its lapse is told of edits; one that finishes in time is told that there were none."""
    if life.finish is None:
        return []
    of_rows = [edit for edit in edits if edit.code is None and life.rows & set(edit.rows)]
    surely = [edit for edit in of_rows if edit.began > life.expiry and edit.ended < life.finish.began]
    perhaps = [edit for edit in of_rows if edit.ended > life.expiry and edit.began < life.finish.ended]
    if surely and life.basis != "changed":
        return [f"the run of {life.fence} (lapsed {life.expiry}, turned over {life.turned}, finish {life.finish}) was told {life.basis}, and {surely[0]} came after its lapse"]
    if not perhaps and life.basis != "unchanged":
        return [f"the run of {life.fence} was told {life.basis}, and nobody edited"]
    return []
