-- Datasets by the hash of their content: a version's examples are stored once.
CREATE TABLE datasets (
    name VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    source VARCHAR,
    created_ns BIGINT
);

CREATE TABLE examples (
    version VARCHAR NOT NULL,
    position INTEGER NOT NULL,
    example_id VARCHAR NOT NULL,
    inputs VARCHAR,
    reference_outputs VARCHAR,
    metadata VARCHAR
);

-- Experiments, and comparisons between them; `compared` holds the names of what is compared.
CREATE TABLE experiments (
    experiment_id VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    prefix VARCHAR,
    description VARCHAR,
    metadata VARCHAR,
    dataset VARCHAR,
    dataset_version VARCHAR,
    repetitions INTEGER,
    expected INTEGER,
    kind VARCHAR NOT NULL,
    compared VARCHAR[],
    created_ns BIGINT
);

-- Runs, append-only: the newest per experiment, example and repetition counts.
CREATE TABLE runs (
    run_id VARCHAR NOT NULL,
    experiment_id VARCHAR NOT NULL,
    example_id VARCHAR NOT NULL,
    repetition INTEGER NOT NULL,
    outputs VARCHAR,
    error VARCHAR,
    trajectory_id VARCHAR,
    start_ns BIGINT,
    end_ns BIGINT,
    seq BIGINT NOT NULL
);

CREATE VIEW current_runs AS
    SELECT * FROM runs
    QUALIFY row_number() OVER (
        PARTITION BY experiment_id, example_id, repetition ORDER BY seq DESC
    ) = 1;

-- Feedback, append-only: what an evaluator's newest call gave a run counts, all keys of it. With
-- an empty run_id it is about the experiment as a whole.
CREATE TABLE feedback (
    experiment_id VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    evaluator VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    score DOUBLE,
    passed BOOLEAN,
    label VARCHAR,
    comment VARCHAR,
    metadata VARCHAR,
    latency_ns BIGINT,
    time_ns BIGINT,
    seq BIGINT NOT NULL
);

CREATE VIEW current_feedback AS
    SELECT * FROM feedback
    QUALIFY rank() OVER (
        PARTITION BY experiment_id, run_id, evaluator ORDER BY time_ns DESC
    ) = 1;

-- Answers of pairwise evaluators, append-only: `scores` go with the runs as they were `shown`.
CREATE TABLE pair_votes (
    experiment_id VARCHAR NOT NULL,
    evaluator VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    example_id VARCHAR NOT NULL,
    repetition INTEGER NOT NULL,
    shown VARCHAR[],
    scores DOUBLE[],
    status VARCHAR NOT NULL,
    comment VARCHAR,
    metadata VARCHAR,
    latency_ns BIGINT,
    time_ns BIGINT,
    seq BIGINT NOT NULL
);

CREATE VIEW current_pair_votes AS
    SELECT * FROM pair_votes
    QUALIFY rank() OVER (
        PARTITION BY experiment_id, evaluator, example_id, repetition, shown
        ORDER BY time_ns DESC
    ) = 1;
