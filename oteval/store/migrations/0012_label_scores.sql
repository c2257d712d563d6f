-- A score that a person gave beside the verdict.
ALTER TABLE human_labels ADD COLUMN score DOUBLE;

CREATE OR REPLACE VIEW current_labels AS
    SELECT * FROM human_labels
    QUALIFY row_number() OVER (
        PARTITION BY trajectory_id, evaluator, person ORDER BY created_ns DESC, rowid DESC
    ) = 1;
