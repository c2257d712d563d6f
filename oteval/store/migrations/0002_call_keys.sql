-- Hashes by which recordings of the same model calls in other traces find a trajectory.
ALTER TABLE trajectories ADD COLUMN call_keys BIGINT[];

CREATE OR REPLACE VIEW current_trajectories AS
    SELECT t.* FROM trajectories t ANTI JOIN superseded s USING (trajectory_id, rev);

-- More dialects are read than before: everything is reconstructed anew.
DELETE FROM progress WHERE stage = 'reconstruct';
