-- The number of each row, in the order in which rows are stored, so that monitors read new ones.
ALTER TABLE trajectories ADD COLUMN seq BIGINT;

UPDATE trajectories SET seq = rowid + 1;

CREATE OR REPLACE VIEW current_trajectories AS
    SELECT t.* FROM trajectories t ANTI JOIN superseded s USING (trajectory_id, rev);

-- One row, changed in every transaction of a check, so that of two checks at once one fails.
CREATE TABLE monitor_checks (number BIGINT NOT NULL, time_ns BIGINT NOT NULL);
INSERT INTO monitor_checks VALUES (0, 0);

-- Monitors with the number of the last score or run that they have read. When `definition` changes,
-- the monitor starts over. `run_seq` is where to look first for the runs of new scores; `reached_ns`
-- is the latest time of an observation.
CREATE TABLE monitors (
    monitor VARCHAR NOT NULL,
    definition VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    run_seq BIGINT NOT NULL,
    reached_ns BIGINT NOT NULL
);

-- The runs of conversations that are not observations yet, because further runs may follow.
CREATE TABLE monitor_open_runs (
    monitor VARCHAR NOT NULL,
    conversation UBIGINT NOT NULL,
    "group" VARCHAR NOT NULL,
    is_single BOOLEAN NOT NULL,
    trajectory_id VARCHAR NOT NULL,
    version VARCHAR,
    value DOUBLE NOT NULL,
    variant BIGINT,
    start_ns BIGINT NOT NULL,
    end_ns BIGINT NOT NULL,
    seq BIGINT NOT NULL
);

-- Conversations that are observations already, by a hash; those of old days are forgotten.
CREATE TABLE monitor_conversations (
    monitor VARCHAR NOT NULL,
    conversation UBIGINT NOT NULL,
    day INTEGER NOT NULL
);

-- The state of each group of a monitor; `detectors` is JSON.
CREATE TABLE monitor_groups (
    monitor VARCHAR NOT NULL,
    "group" VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    first_ns BIGINT NOT NULL,
    last_ns BIGINT NOT NULL,
    longest_gap_ns BIGINT NOT NULL,
    observations BIGINT NOT NULL,
    tried BIGINT NOT NULL,
    recent DOUBLE,
    evidence DOUBLE,
    progress VARCHAR NOT NULL,
    detectors VARCHAR USING COMPRESSION zstd
);

-- Observations of groups that are still learning.
CREATE TABLE monitor_learning (
    monitor VARCHAR NOT NULL,
    "group" VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    variants BIGINT[],
    time_ns BIGINT NOT NULL,
    number BIGINT NOT NULL,
    trajectory_id VARCHAR
);

-- Frozen baselines by group and version of the evaluator, append-only.
CREATE TABLE monitor_baselines (
    monitor VARCHAR NOT NULL,
    "group" VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    baseline VARCHAR NOT NULL,
    created_ns BIGINT NOT NULL
);

-- Episodes: from an alert to its end. Times are those of runs, except `opened_ns` and `closed_ns`,
-- which are those of checks.
CREATE TABLE monitor_episodes (
    episode_id VARCHAR NOT NULL,
    monitor VARCHAR NOT NULL,
    "group" VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    side VARCHAR NOT NULL,
    alarm_ns BIGINT NOT NULL,
    change_ns BIGINT NOT NULL,
    change_from_ns BIGINT NOT NULL,
    change_to_ns BIGINT NOT NULL,
    before DOUBLE,
    after DOUBLE,
    observations BIGINT NOT NULL,
    opened_ns BIGINT NOT NULL,
    ended_ns BIGINT,
    closed_ns BIGINT,
    end_reason VARCHAR,
    is_notified BOOLEAN NOT NULL,
    is_end_notified BOOLEAN NOT NULL,
    acknowledged_ns BIGINT,
    acknowledged_by VARCHAR,
    runs VARCHAR[]
);

-- Snoozes, append-only; without a group, of all groups of the monitor.
CREATE TABLE monitor_snoozes (
    monitor VARCHAR NOT NULL,
    "group" VARCHAR,
    until_ns BIGINT NOT NULL,
    actor VARCHAR NOT NULL,
    time_ns BIGINT NOT NULL
);

-- Marks on the timeline: deployments that were seen in runs (`kind` is version), or noted.
CREATE TABLE monitor_marks (
    time_ns BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    service VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    created_ns BIGINT NOT NULL
);

-- The versions of services, and how far runs have been looked through for them.
CREATE TABLE monitor_versions (
    service VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    first_ns BIGINT NOT NULL,
    last_ns BIGINT NOT NULL
);

-- The outbox: one row per notification and destination. It is delivered when `sent_ns` is set.
CREATE TABLE notifications (
    notification_id VARCHAR NOT NULL,
    destination VARCHAR NOT NULL,
    episode_id VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    payload VARCHAR NOT NULL,
    runs VARCHAR[],
    created_ns BIGINT NOT NULL,
    attempts INTEGER NOT NULL,
    next_ns BIGINT NOT NULL,
    sent_ns BIGINT,
    error VARCHAR
);
