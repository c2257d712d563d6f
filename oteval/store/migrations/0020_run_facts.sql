-- The facts about a run beside its messages (agent, models, usage, gaps), as JSON. NULL in the rows
-- of runs from before.
ALTER TABLE runs ADD COLUMN facts VARCHAR;

CREATE OR REPLACE VIEW current_runs AS
    SELECT * FROM runs
    QUALIFY row_number() OVER (
        PARTITION BY experiment_id, example_id, repetition ORDER BY seq DESC
    ) = 1;
