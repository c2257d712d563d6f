-- Which runs a judge's cached answers are about, so that they can be deleted with them.
CREATE TABLE judge_call_targets (key VARCHAR NOT NULL, trajectory_id VARCHAR NOT NULL);

-- Deletions and the like, append-only: when, who, what, and how much as JSON. It holds no content.
CREATE TABLE audit_log (
    time_ns BIGINT NOT NULL,
    actor VARCHAR NOT NULL,
    action VARCHAR NOT NULL,
    detail VARCHAR NOT NULL
);
