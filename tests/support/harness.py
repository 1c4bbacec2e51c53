"""Everything a test needs to run Leasehold on real parts, in one import. Each noun has a file of its own."""
from events import Events
from kafka import GivenKafka, Kafka
from place import INPUTS, OUTPUTS, Coordinator, Place
from postgres import Database, GivenPostgres, Postgres
from processes import Child, end_descendants, free_port, run
from topics import Reader, Record, read_topic
from waiting import NotYet, eventually

__all__ = ["Child", "Coordinator", "Database", "Events", "GivenKafka", "GivenPostgres", "INPUTS", "Kafka", "NotYet",
           "OUTPUTS", "Place", "Postgres", "Reader", "Record", "end_descendants", "eventually", "free_port", "read_topic",
           "run"]
