-- What people said of runs, append-only: the newest of a person on a run for an evaluator counts.
CREATE TABLE human_labels (
    trajectory_id VARCHAR NOT NULL,
    evaluator VARCHAR NOT NULL,
    person VARCHAR NOT NULL,
    passed BOOLEAN NOT NULL,
    note VARCHAR,
    created_ns BIGINT
);

CREATE VIEW current_labels AS
    SELECT * FROM human_labels
    QUALIFY row_number() OVER (
        PARTITION BY trajectory_id, evaluator, person ORDER BY created_ns DESC, rowid DESC
    ) = 1;
