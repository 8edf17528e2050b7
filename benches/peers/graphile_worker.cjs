// Jobs that do nothing, through graphile-worker. Usage: graphile_worker.cjs JOBS WORKERS. Prints the seconds from the first
// job added to the last one done. The database is where the environment says (PGHOST and so on). Run by
// `loxley-bench cluster`.
const { Pool } = require("pg");
const { Logger, run, runMigrations } = require("graphile-worker");

async function main() {
  const jobs = Number(process.argv[2]);
  const workers = Number(process.argv[3]);
  // Its makers measure with several jobs at once in each worker.
  const concurrency = 12;
  const pgPool = new Pool({ max: workers * (concurrency + 2) });
  const logger = new Logger(() => () => undefined);
  await runMigrations({ pgPool, logger });
  let done = 0;
  let finish;
  const all = new Promise((resolve) => (finish = resolve));
  const taskList = {
    "no-op": () => {
      done += 1;
      if (done === jobs) finish();
    },
  };
  const begun = process.hrtime.bigint();
  await pgPool.query(
    `select graphile_worker.add_jobs(array(select json_populate_record(null::graphile_worker.job_spec,
       json_build_object('identifier', 'no-op', 'payload', json_build_object('number', number)))
       from generate_series(1, $1::int) as number), false)`,
    [jobs],
  );
  const runners = [];
  for (let worker = 0; worker < workers; worker += 1) {
    runners.push(await run({ pgPool, concurrency, taskList, logger, noHandleSignals: true }));
  }
  await all;
  for (const runner of runners) await runner.stop();
  const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
  const left = await pgPool.query("select count(*)::int as count from graphile_worker.jobs");
  if (left.rows[0].count !== 0) throw new Error(`${left.rows[0].count} jobs are left`);
  console.log(seconds);
  await pgPool.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
