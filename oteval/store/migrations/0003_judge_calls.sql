-- Every question to a judge and what came of it, append-only; the newest answer of a key is given
-- again. The index is what a look-up of one key among many goes by; rows are few and come slowly.
CREATE TABLE judge_calls (
    key VARCHAR NOT NULL,
    evaluator VARCHAR NOT NULL,
    model VARCHAR,
    base_url VARCHAR,
    answered_by VARCHAR,
    answer VARCHAR,
    error VARCHAR,
    rung VARCHAR,
    raw VARCHAR,
    requests INTEGER,
    input_tokens BIGINT,
    output_tokens BIGINT,
    cached_tokens BIGINT,
    cost DOUBLE,
    latency DOUBLE,
    time_ns BIGINT NOT NULL
);

CREATE INDEX judge_calls_by_key ON judge_calls (key);
