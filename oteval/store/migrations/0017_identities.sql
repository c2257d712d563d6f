-- The user and the version of a run. They are NULL in the rows of runs from before.
ALTER TABLE trajectories ADD COLUMN user_id VARCHAR;
ALTER TABLE trajectories ADD COLUMN agent_version VARCHAR;

CREATE OR REPLACE VIEW current_trajectories AS
    SELECT t.* FROM trajectories t ANTI JOIN superseded s USING (trajectory_id, rev);
