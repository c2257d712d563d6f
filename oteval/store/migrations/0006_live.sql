-- When traces were complete, append-only: of a trace, the newest counts. What had come by then has
-- numbers up to `seq`; `number` counts the completions.
CREATE TABLE completions (
    number BIGINT NOT NULL,
    trace_id VARCHAR NOT NULL,
    seq BIGINT NOT NULL,
    reason VARCHAR NOT NULL,
    time_ns BIGINT NOT NULL
);

-- Evaluators as live scoring has them: since when, and up to which completion all is done.
CREATE TABLE live_rules (
    evaluator VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    since_ns BIGINT NOT NULL,
    settled BIGINT NOT NULL
);

-- What evaluators cost by day (UTC), append-only: the sum counts.
CREATE TABLE evaluator_spend (
    evaluator VARCHAR NOT NULL,
    day VARCHAR NOT NULL,
    calls BIGINT NOT NULL,
    cost DOUBLE NOT NULL
);

-- The newest score of each evaluator on each judged span, whatever its version.
CREATE VIEW span_scores AS
    SELECT s.trace_id, s.span_id, s.evaluator, s.version, s.status, s.score, s.label, s.passed,
           s.comment, s.metadata, s.sample_p, s.time_ns, s.trajectory_id, s.rev
    FROM scores s
    SEMI JOIN current_trajectories t USING (trajectory_id)
    QUALIFY row_number() OVER (
        PARTITION BY s.trajectory_id, s.evaluator ORDER BY s.rev DESC, s.seq DESC
    ) = 1;

-- Spans as they came, with their scores as a list beside them.
CREATE VIEW scored_spans AS
    SELECT s.*, j.scores
    FROM spans s
    LEFT JOIN (
        SELECT trace_id, span_id,
               list({evaluator: evaluator, score: score, label: label, passed: passed,
                     status: status, comment: comment} ORDER BY evaluator) AS scores
        FROM span_scores GROUP BY trace_id, span_id
    ) j USING (trace_id, span_id);

-- How far the spool of received requests is stored; one row, changed in the transaction that
-- stores what was read.
CREATE TABLE spool_position (segment BIGINT NOT NULL, "offset" BIGINT NOT NULL);
INSERT INTO spool_position VALUES (0, 0);
