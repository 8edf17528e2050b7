//! The tables, in a schema of their own.
//!
//! Plain SQL: no advisory locks, no `NOTIFY`, no extension, no trigger. Groups and snapshots are ours alone; the tables
//! `job`, `output` and `agent`, and the views `task`, `job_history` and `task_history`, are for everybody who may read the
//! schema. How tasks are kept is told in `rows.rs`.

/// The number of this arrangement of tables.
pub const VERSION: i32 = 5;

/// The first arrangement that is still brought up to this one.
pub const OLDEST: i32 = 1;

/// Stands in place of a version while a journal is copied into the tables: nobody may serve from them.
pub(super) const UNFINISHED: i32 = 0;

/// The statements that make the tables in `schema`: to be run as one transaction.
#[must_use]
pub fn sql(schema: &str) -> String {
    sql_of(schema, VERSION)
}

/// As [`sql`], with another number in place of the version.
pub(super) fn sql_of(schema: &str, version: i32) -> String {
    let made =
        format!("CREATE SCHEMA IF NOT EXISTS {schema};\nSET LOCAL search_path = {schema};\n");
    format!(
        "{made}{TABLES}{RUNS}{VIEWS}\nINSERT INTO meta (one, version, shards, cluster, journal, origin_ns)\n  \
        SELECT 1, {version}, 0, number, number, (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint\n  \
        FROM (SELECT (random() * 9223372036854775807)::bigint AS number) AS drawn;\n\
        INSERT INTO shard (id, epoch, holder, url, expires, base, base_chain, next, chain)\n  \
        VALUES (0, 0, NULL, '', clock_timestamp(), 0, '', 0, '');\n"
    )
}

/// The statements that bring tables of an older version up to [`VERSION`]: to be run as one transaction. Servers of versions
/// before 5 that still run can write no more and end; what they acknowledged is there. None: there is no such version.
#[must_use]
pub fn upgrade_sql(schema: &str, from: i32) -> Option<String> {
    let steps = CHANGES.get(usize::try_from(from.checked_sub(OLDEST)?).ok()?..)?;
    let steps = steps.concat();
    Some(format!(
        "SET LOCAL search_path = {schema};\n{steps}UPDATE meta SET version = {VERSION};\n"
    ))
}

macro_rules! runs {
    () => {
        "
-- Finished tasks in runs: what the group at this position says of the tasks of one job in one block of 4,096 ids. Each
-- array has a value for each task in the array `task`; one that is missing means none (for `ended`: 0, for `attempt`: 1, for
-- `created_each`: `created`). A task that ended again is in two runs, and the higher position counts.
CREATE TABLE task_run (
  shard int NOT NULL, block bigint NOT NULL, job bigint NOT NULL, pos bigint NOT NULL, first bigint NOT NULL,
  last bigint NOT NULL, count int NOT NULL, unsuccessful int NOT NULL, created bigint NOT NULL, task bigint[] NOT NULL,
  entry bigint[], ended int[], exit_code int[], signal int[], agent bigint[], attempt bigint[], created_each bigint[],
  started bigint[], finished bigint[] NOT NULL, duration_ns bigint[], user_ns bigint[], system_ns bigint[],
  memory_bytes bigint[], PRIMARY KEY (shard, block, job, pos));
CREATE INDEX task_run_unsuccessful ON task_run (shard, block) WHERE unsuccessful > 0;
-- To compress arrays, or to count how often each number is in them, would take longer than all else.
ALTER TABLE task_run ALTER task SET STORAGE EXTERNAL, ALTER entry SET STORAGE EXTERNAL,
  ALTER ended SET STORAGE EXTERNAL, ALTER exit_code SET STORAGE EXTERNAL, ALTER signal SET STORAGE EXTERNAL,
  ALTER agent SET STORAGE EXTERNAL, ALTER attempt SET STORAGE EXTERNAL, ALTER created_each SET STORAGE EXTERNAL,
  ALTER started SET STORAGE EXTERNAL, ALTER finished SET STORAGE EXTERNAL, ALTER duration_ns SET STORAGE EXTERNAL,
  ALTER user_ns SET STORAGE EXTERNAL, ALTER system_ns SET STORAGE EXTERNAL, ALTER memory_bytes SET STORAGE EXTERNAL;
ALTER TABLE task_run ALTER task SET STATISTICS 0, ALTER entry SET STATISTICS 0, ALTER ended SET STATISTICS 0,
  ALTER exit_code SET STATISTICS 0, ALTER signal SET STATISTICS 0, ALTER agent SET STATISTICS 0,
  ALTER attempt SET STATISTICS 0, ALTER created_each SET STATISTICS 0, ALTER started SET STATISTICS 0,
  ALTER finished SET STATISTICS 0, ALTER duration_ns SET STATISTICS 0, ALTER user_ns SET STATISTICS 0,
  ALTER system_ns SET STATISTICS 0, ALTER memory_bytes SET STATISTICS 0;
"
    };
}

macro_rules! views {
    () => {
        "
CREATE OR REPLACE VIEW job_history AS SELECT job, name, username,
  CASE state WHEN 0 THEN 'open' WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed' ELSE 'cancelled' END AS state,
  task_count, succeeded, failed, cancelled,
  to_timestamp((origin_ns + created) / 1000000000.0) AS created,
  to_timestamp((origin_ns + finished) / 1000000000.0) AS finished
  FROM job, meta;
-- One row for each finished task.
CREATE OR REPLACE VIEW task AS SELECT DISTINCT ON (run.shard, run.block, run.job, t.task)
  run.shard, run.block, run.job, t.task, t.entry, coalesce(t.ended, 0) AS ended, t.exit_code, t.signal, t.agent,
  coalesce(t.attempt, 1) AS attempt,
  coalesce(t.created_each, run.created) AS created, t.started, t.finished, t.duration_ns, t.user_ns, t.system_ns,
  t.memory_bytes
  FROM task_run AS run, unnest(run.task, run.entry, run.ended, run.exit_code, run.signal, run.agent, run.attempt,
    run.created_each, run.started, run.finished, run.duration_ns, run.user_ns, run.system_ns, run.memory_bytes)
    AS t (task, entry, ended, exit_code, signal, agent, attempt, created_each, started, finished, duration_ns, user_ns,
    system_ns, memory_bytes)
  ORDER BY run.shard, run.block, run.job, t.task, run.pos DESC;
CREATE OR REPLACE VIEW task_history AS SELECT task.task, task.job, task.entry,
  CASE ended WHEN 0 THEN 'succeeded' WHEN 1 THEN 'fell back' WHEN 10 THEN 'failed' WHEN 11 THEN 'failed for good'
    WHEN 12 THEN 'time limit' WHEN 13 THEN 'agent lost' WHEN 14 THEN 'unassignable' WHEN 15 THEN 'dependency failed'
    WHEN 20 THEN 'cancelled' ELSE 'returned' END AS ended,
  exit_code, signal, agent.name AS agent, attempt,
  to_timestamp((origin_ns + created) / 1000000000.0) AS created,
  to_timestamp((origin_ns + started) / 1000000000.0) AS started,
  to_timestamp((origin_ns + finished) / 1000000000.0) AS finished,
  duration_ns / 1e9 AS seconds, user_ns / 1e9 AS user_seconds, system_ns / 1e9 AS system_seconds, memory_bytes
  FROM task LEFT JOIN agent ON agent.shard = task.shard AND agent.agent = task.agent, meta;
"
    };
}

/// What each version changed, from the one after [`OLDEST`] on.
const CHANGES: [&str; (VERSION - OLDEST) as usize] = ["
-- Version 2: the number of the journal is not that of the cluster, so that a copy is another cluster; each name of an
-- instance once; jobs are found by their end, to be forgotten.
ALTER TABLE meta ADD COLUMN journal bigint;
UPDATE meta SET journal = cluster;
ALTER TABLE meta ALTER COLUMN journal SET NOT NULL;
DELETE FROM instance;
CREATE UNIQUE INDEX instance_name ON instance (name);
CREATE INDEX job_finished ON job (shard, finished) WHERE finished IS NOT NULL;
",
"
-- Version 3: several shards.
ALTER TABLE meta ADD COLUMN shards int NOT NULL DEFAULT 1;
ALTER TABLE meta ALTER COLUMN shards DROP DEFAULT;
CREATE TABLE load (shard int PRIMARY KEY, seen timestamptz NOT NULL, body text NOT NULL);
",
"
-- Version 4: tasks move between shards.
CREATE TABLE letter (
  src int NOT NULL, dst int NOT NULL, number bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (src, dst, number));
ALTER TABLE letter ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE letter_read (src int NOT NULL, dst int NOT NULL, number bigint NOT NULL, PRIMARY KEY (src, dst));
",
concat!("
-- Version 5: finished tasks in runs. What is there is older than any of these. Views keep the rights that were given on
-- them.
ALTER TABLE task RENAME TO task_before;
", runs!(), "
INSERT INTO task_run SELECT shard, task / 4096, job, -1, min(task), max(task), count(*),
  count(*) FILTER (WHERE ended > 1), min(created), array_agg(task ORDER BY task), array_agg(entry ORDER BY task),
  array_agg(ended ORDER BY task), array_agg(exit_code ORDER BY task), array_agg(signal ORDER BY task),
  array_agg(agent ORDER BY task), array_agg(attempt ORDER BY task), array_agg(created ORDER BY task),
  array_agg(started ORDER BY task), array_agg(finished ORDER BY task), array_agg(duration_ns ORDER BY task),
  array_agg(user_ns ORDER BY task), array_agg(system_ns ORDER BY task), array_agg(memory_bytes ORDER BY task)
  FROM task_before GROUP BY shard, task / 4096, job;
", views!(), "
DROP TABLE task_before;
")];

const RUNS: &str = runs!();

const VIEWS: &str = views!();

const TABLES: &str = "
-- One row: which arrangement of tables this is, how many shards there are (0: the first server says), which cluster,
-- which journal, and the moment that its times count from (nanoseconds since 1970).
CREATE TABLE meta (
  one int PRIMARY KEY CHECK (one = 1), version int NOT NULL, shards int NOT NULL, cluster bigint NOT NULL,
  journal bigint NOT NULL, origin_ns bigint NOT NULL);

-- Of each shard: who may write, until when, and where its journal ends. Every append changes this row, and only if epoch,
-- holder, position and chain are what the writer thinks they are.
CREATE TABLE shard (
  id int PRIMARY KEY, epoch bigint NOT NULL, holder bigint, url text NOT NULL, expires timestamptz NOT NULL,
  base bigint NOT NULL, base_chain bytea NOT NULL, next bigint NOT NULL, chain bytea NOT NULL);

-- The servers that are or were there.
CREATE TABLE instance (
  id bigint PRIMARY KEY, name text NOT NULL, url text NOT NULL, version text NOT NULL,
  started timestamptz NOT NULL, seen timestamptz NOT NULL, clock_ms bigint NOT NULL);
CREATE UNIQUE INDEX instance_name ON instance (name);

-- How much each shard has to do and who could do it, as JSON, told about once a second: a hint for whoever shares out
-- agents, on which nothing depends.
CREATE TABLE load (shard int PRIMARY KEY, seen timestamptz NOT NULL, body text NOT NULL);

-- What one shard says to another, numbered from 1 for each pair: written with the group of its sender that it follows from,
-- read by the holder of its recipient, which writes with a group of its own how far it has read; then the sender deletes it.
CREATE TABLE letter (
  src int NOT NULL, dst int NOT NULL, number bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (src, dst, number));
ALTER TABLE letter ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE letter_read (src int NOT NULL, dst int NOT NULL, number bigint NOT NULL, PRIMARY KEY (src, dst));

-- What all servers of the cluster have in common: certificate and tokens. Guard it as the directory of a server.
CREATE TABLE shared (name text PRIMARY KEY, body bytea NOT NULL);

CREATE TABLE grp (
  shard int NOT NULL, pos bigint NOT NULL, epoch bigint NOT NULL, n int NOT NULL, crc bigint NOT NULL,
  chain bytea NOT NULL, facts bytea NOT NULL, PRIMARY KEY (shard, pos));
-- Facts are packed already.
ALTER TABLE grp ALTER COLUMN facts SET STORAGE EXTERNAL;

CREATE TABLE snapshot (
  shard int NOT NULL, pos bigint NOT NULL, chain bytea NOT NULL, first_piece bigint NOT NULL,
  piece_count bigint NOT NULL, crc bigint NOT NULL, PRIMARY KEY (shard, pos));
CREATE TABLE piece (
  shard int NOT NULL, piece bigint NOT NULL, crc bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (shard, piece));
ALTER TABLE piece ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE job (
  shard int NOT NULL, job bigint NOT NULL, name text NOT NULL, username text NOT NULL, first_task bigint NOT NULL,
  task_count bigint NOT NULL, state int NOT NULL, created bigint NOT NULL, finished bigint, succeeded bigint NOT NULL,
  failed bigint NOT NULL, cancelled bigint NOT NULL, detail bytea NOT NULL, PRIMARY KEY (shard, job));
CREATE INDEX job_finished ON job (shard, finished) WHERE finished IS NOT NULL;
CREATE TABLE output (
  shard int NOT NULL, task bigint NOT NULL, output bytea NOT NULL, result bytea NOT NULL, PRIMARY KEY (shard, task));
CREATE TABLE agent (shard int NOT NULL, agent bigint NOT NULL, name text NOT NULL, PRIMARY KEY (shard, agent));
";
