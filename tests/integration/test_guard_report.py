# ctest: LABEL kafka TIMEOUT 240
"""A coordinator says at its start, in its log and in /metrics, what is wrong with guarded tables, and which one is not guarded and should be."""
from waiting import eventually

TABLES = """
  CREATE TABLE public.album_contract (id int PRIMARY KEY, rate numeric NOT NULL);
  SELECT lease.guard_table('public.album_contract', 'album-contract', ARRAY['rate']);
"""


def reports(coordinator):
    return [line for line in coordinator.log_text().splitlines() if "event=guard " in line]


def test_a_sound_guard_is_nothing_to_report(small_place):
    small_place.database.query(TABLES)
    coordinator = small_place.coordinator().start()
    eventually(lambda: coordinator.metric("lease_guard_findings") == 0, 60, "it has looked")
    assert reports(coordinator) == []


def test_what_was_altered_and_what_is_not_guarded_is_reported(small_place):
    small_place.database.query(TABLES + "ALTER TABLE public.album_contract DISABLE TRIGGER lease_guard_edit; CREATE TABLE public.track_contract (id int PRIMARY KEY)")
    coordinator = small_place.coordinator().start()
    eventually(lambda: coordinator.metric("lease_guard_findings") == 2, 60, "both are counted")
    said = reports(coordinator)
    assert len(said) == 2 and all("level=warning" in line and "remedy=" in line for line in said)
    assert any("code=trigger_disabled" in line and "public.album_contract" in line for line in said)
    assert any("code=not_guarded" in line and "public.track_contract" in line for line in said)
    assert 'lease_guard_findings{stops_starts="true"} 1' in coordinator.get("/metrics")[1]
