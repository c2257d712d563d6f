-- The documents that a run's retrievers returned, as JSON, '' without any. NULL in the
-- rows of runs from before.
ALTER TABLE trajectories ADD COLUMN documents VARCHAR;

CREATE OR REPLACE VIEW current_trajectories AS
    SELECT t.* FROM trajectories t ANTI JOIN superseded s USING (trajectory_id, rev);
