-- The tables of version 1, as servers made them: a test brings them up to date.
CREATE SCHEMA old;
SET search_path = old;
-- One row: which arrangement of tables this is, which cluster, and the moment that its times count from
-- (nanoseconds since 1970).
CREATE TABLE meta (
  one int PRIMARY KEY CHECK (one = 1), version int NOT NULL, cluster bigint NOT NULL, origin_ns bigint NOT NULL);

-- Who may write, until when, and where the journal ends. Every append changes this row, and only if epoch, holder,
-- position and chain are what the writer thinks they are.
CREATE TABLE shard (
  id int PRIMARY KEY, epoch bigint NOT NULL, holder bigint, url text NOT NULL, expires timestamptz NOT NULL,
  base bigint NOT NULL, base_chain bytea NOT NULL, next bigint NOT NULL, chain bytea NOT NULL);

-- The servers that are or were there.
CREATE TABLE instance (
  id bigint PRIMARY KEY, name text NOT NULL, url text NOT NULL, version text NOT NULL,
  started timestamptz NOT NULL, seen timestamptz NOT NULL, clock_ms bigint NOT NULL);

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
CREATE TABLE task (
  shard int NOT NULL, task bigint NOT NULL, job bigint NOT NULL, entry bigint, ended int NOT NULL, exit_code int,
  signal int, agent bigint, attempt bigint NOT NULL, created bigint NOT NULL, started bigint, finished bigint NOT NULL,
  duration_ns bigint, user_ns bigint, system_ns bigint, memory_bytes bigint, PRIMARY KEY (shard, task));
-- Successes are 0 and 1.
CREATE INDEX task_unsuccessful ON task (shard, task) WHERE ended > 1;
CREATE TABLE output (
  shard int NOT NULL, task bigint NOT NULL, output bytea NOT NULL, result bytea NOT NULL, PRIMARY KEY (shard, task));
CREATE TABLE agent (shard int NOT NULL, agent bigint NOT NULL, name text NOT NULL, PRIMARY KEY (shard, agent));

CREATE VIEW job_history AS SELECT job, name, username,
  CASE state WHEN 0 THEN 'open' WHEN 1 THEN 'succeeded' WHEN 2 THEN 'failed' ELSE 'cancelled' END AS state,
  task_count, succeeded, failed, cancelled,
  to_timestamp((origin_ns + created) / 1000000000.0) AS created,
  to_timestamp((origin_ns + finished) / 1000000000.0) AS finished
  FROM job, meta;
CREATE VIEW task_history AS SELECT task.task, task.job, task.entry,
  CASE ended WHEN 0 THEN 'succeeded' WHEN 1 THEN 'fell back' WHEN 10 THEN 'failed' WHEN 11 THEN 'failed for good'
    WHEN 12 THEN 'time limit' WHEN 13 THEN 'agent lost' WHEN 14 THEN 'unassignable' WHEN 15 THEN 'dependency failed'
    WHEN 20 THEN 'cancelled' ELSE 'returned' END AS ended,
  exit_code, signal, agent.name AS agent, attempt,
  to_timestamp((origin_ns + created) / 1000000000.0) AS created,
  to_timestamp((origin_ns + started) / 1000000000.0) AS started,
  to_timestamp((origin_ns + finished) / 1000000000.0) AS finished,
  duration_ns / 1e9 AS seconds, user_ns / 1e9 AS user_seconds, system_ns / 1e9 AS system_seconds, memory_bytes
  FROM task LEFT JOIN agent ON agent.shard = task.shard AND agent.agent = task.agent, meta;

INSERT INTO meta (one, version, cluster, origin_ns) VALUES (1, 1, 4711, 1000);
INSERT INTO shard (id, epoch, holder, url, expires, base, base_chain, next, chain)
  VALUES (0, 3, 7, '', clock_timestamp(), 0, '', 0, '');
INSERT INTO instance (id, name, url, version, started, seen, clock_ms)
  VALUES (1, 'same', '', '', clock_timestamp(), clock_timestamp(), 0),
  (2, 'same', '', '', clock_timestamp(), clock_timestamp(), 0);
