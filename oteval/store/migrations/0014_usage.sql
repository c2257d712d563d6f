-- All kinds of tokens that have a price of their own, why the models stopped, and the named prompts.
-- They are NULL in the rows of runs from before, which counted cached tokens as their emitters did.
ALTER TABLE trajectories ADD COLUMN cache_write_tokens BIGINT;
ALTER TABLE trajectories ADD COLUMN reasoning_tokens BIGINT;
ALTER TABLE trajectories ADD COLUMN input_audio_tokens BIGINT;
ALTER TABLE trajectories ADD COLUMN output_audio_tokens BIGINT;
ALTER TABLE trajectories ADD COLUMN finish_reasons VARCHAR[];
ALTER TABLE trajectories ADD COLUMN prompts VARCHAR[];

CREATE OR REPLACE VIEW current_trajectories AS
    SELECT t.* FROM trajectories t ANTI JOIN superseded s USING (trajectory_id, rev);
