-- All agents of a run that one agent handed to another; the column agent has the first of them.
ALTER TABLE trajectories ADD COLUMN agents VARCHAR[];

CREATE OR REPLACE VIEW current_trajectories AS
    SELECT t.* FROM trajectories t ANTI JOIN superseded s USING (trajectory_id, rev);
