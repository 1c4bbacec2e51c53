SELECT pg_catalog.txid_current()
