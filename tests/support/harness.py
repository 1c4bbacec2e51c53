"""Everything a test needs to run Leasehold on real parts, in one import. Each noun has a file of its own."""
from kafka import GivenKafka, Kafka
from postgres import Database, GivenPostgres, Postgres
from processes import Child, end_descendants, free_port, run
from waiting import NotYet, eventually

__all__ = ["Child", "Database", "GivenKafka", "GivenPostgres", "Kafka", "NotYet", "Postgres", "end_descendants",
           "eventually", "free_port", "run"]
