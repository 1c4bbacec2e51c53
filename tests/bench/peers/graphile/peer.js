// graphile-worker as its page on performance sets it up. See ../README.md for the commands.
"use strict";
const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { Client } = require("pg");

const [command, connectionString, count] = process.argv.slice(2);
const logger = new Logger(() => () => {});

async function query(sql, values) {
  const client = new Client({ connectionString });
  await client.connect();
  try {
    return await client.query(sql, values);
  } finally {
    await client.end();
  }
}

async function prepare() {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  await utils.release();
  await query(
    `SELECT graphile_worker.add_jobs(array_agg(json_populate_record(null::graphile_worker.job_spec, '{"identifier": "nothing"}')))
       FROM generate_series(1, $1::int)`, [count]);
  await query("VACUUM ANALYZE graphile_worker._private_jobs");
}

async function work() {
  const lines = require("node:readline").createInterface({ input: process.stdin });
  let runner = null;
  lines.on("line", async () => {
    runner = await run({
      connectionString, logger, noHandleSignals: true, taskList: { nothing() {} },
      preset: { worker: { concurrentJobs: 24, maxPoolSize: 25, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
    });
  });
  lines.on("close", async () => {
    if (runner) await runner.stop();
    process.exit(0);
  });
  console.log("ready");
}

({ prepare, work })[command]();
