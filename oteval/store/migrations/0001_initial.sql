-- Spans as they came. Attributes that people filter on are columns too; `input` and `output` hold
-- the text of the attributes named by `input_key` and `output_key`, which `attributes` then lacks.
-- No primary key: an ART index costs more than all the rest of an insert.
CREATE TABLE spans (
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    parent_id VARCHAR,
    name VARCHAR,
    kind UTINYINT,
    start_ns BIGINT,
    end_ns BIGINT,
    status_code UTINYINT,
    status_message VARCHAR,
    service VARCHAR,
    scope VARCHAR,
    scope_version VARCHAR,
    operation VARCHAR,
    agent VARCHAR,
    conversation_id VARCHAR,
    provider VARCHAR,
    request_model VARCHAR,
    response_model VARCHAR,
    tool_name VARCHAR,
    call_id VARCHAR,
    error_type VARCHAR,
    input_tokens BIGINT,
    output_tokens BIGINT,
    input_key VARCHAR,
    input VARCHAR,
    output_key VARCHAR,
    output VARCHAR,
    attributes VARCHAR,
    events VARCHAR,
    links VARCHAR,
    resource VARCHAR,
    rest VARCHAR,
    seq BIGINT NOT NULL
);

-- Log records as they came; several dialects keep message content in them.
CREATE TABLE logs (
    trace_id VARCHAR,
    span_id VARCHAR,
    time_ns BIGINT,
    observed_ns BIGINT,
    event_name VARCHAR,
    severity INTEGER,
    severity_text VARCHAR,
    service VARCHAR,
    scope VARCHAR,
    scope_version VARCHAR,
    body VARCHAR,
    attributes VARCHAR,
    resource VARCHAR,
    dropped_attributes INTEGER,
    fingerprint VARCHAR NOT NULL,
    seq BIGINT NOT NULL
);

-- Trajectories, append-only by `rev`: a row holds the messages after those of its history. The
-- columns from `roles` on are of the run's own messages, for matching in SQL.
CREATE TABLE trajectories (
    trajectory_id VARCHAR NOT NULL,
    rev INTEGER NOT NULL,
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    trace_ids VARCHAR[],
    history_id VARCHAR,
    conversation_id VARCHAR,
    turn INTEGER,
    new_from INTEGER,
    agent VARCHAR,
    service VARCHAR,
    parent_id VARCHAR,
    parent_call_id VARCHAR,
    start_ns BIGINT,
    end_ns BIGINT,
    models VARCHAR[],
    dialects VARCHAR[],
    input_tokens BIGINT,
    output_tokens BIGINT,
    cached_tokens BIGINT,
    model_calls INTEGER,
    messages VARCHAR,
    steps VARCHAR,
    tools VARCHAR,
    gaps VARCHAR,
    gap_codes VARCHAR[],
    rewrites VARCHAR,
    attributes VARCHAR,
    chain VARCHAR,
    follows VARCHAR,
    fingerprint VARCHAR,
    roles VARCHAR[],
    call_names VARCHAR[],
    call_hashes BIGINT[],
    call_messages INTEGER[],
    call_errors BOOLEAN[],
    strict_names BIGINT,
    strict_calls BIGINT,
    overlapping BOOLEAN
);

-- Revisions that a later one replaced, or whose root is no root any more.
CREATE TABLE superseded (trajectory_id VARCHAR NOT NULL, rev INTEGER NOT NULL);

CREATE VIEW current_trajectories AS
    SELECT t.* FROM trajectories t ANTI JOIN superseded s USING (trajectory_id, rev);

-- Scores, append-only: the newest per trajectory, evaluator and version counts.
CREATE TABLE scores (
    trajectory_id VARCHAR NOT NULL,
    rev INTEGER NOT NULL,
    trace_id VARCHAR,
    span_id VARCHAR,
    evaluator VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    score DOUBLE,
    label VARCHAR,
    passed BOOLEAN,
    comment VARCHAR,
    metadata VARCHAR,
    sample_p DOUBLE,
    time_ns BIGINT,
    seq BIGINT NOT NULL
);

CREATE VIEW current_scores AS
    SELECT * FROM scores
    QUALIFY row_number() OVER (
        PARTITION BY trajectory_id, evaluator, version ORDER BY rev DESC, seq DESC
    ) = 1;

CREATE TABLE "references" (
    name VARCHAR NOT NULL,
    messages VARCHAR NOT NULL,
    source VARCHAR,
    created_ns BIGINT
);

-- How far the spans and logs have been reconstructed.
CREATE TABLE progress (stage VARCHAR NOT NULL, seq BIGINT NOT NULL);
