-- What live scoring looks up at every turn, so that it need not look through all rows for it.

-- When the history begins, as it was when the row was written: where to look for it first.
ALTER TABLE trajectories ADD COLUMN history_ns BIGINT;

UPDATE trajectories SET history_ns = h.start_ns FROM current_trajectories h
    WHERE trajectories.history_id = h.trajectory_id;

CREATE OR REPLACE VIEW current_trajectories AS
    SELECT t.* FROM trajectories t ANTI JOIN superseded s USING (trajectory_id, rev);

-- The number of the first span or log record that had come since the trace was complete before;
-- NULL where that was not noted. What came of a trace until it was complete lies between the two
-- numbers of one of its completions.
ALTER TABLE completions ADD COLUMN first_seq BIGINT;

-- The conversations of traces in the database, noted when their spans come; `seq` is the number of
-- the last span that had come by then.
CREATE TABLE trace_conversations (
    conversation_id VARCHAR NOT NULL,
    trace_id VARCHAR NOT NULL,
    seq BIGINT NOT NULL
);

INSERT INTO trace_conversations
    SELECT conversation_id, trace_id, max(seq) FROM spans
    WHERE conversation_id IS NOT NULL GROUP BY ALL;

CREATE VIEW noted_conversations AS
    SELECT trace_id, conversation_id FROM trace_conversations
    UNION ALL
    SELECT trace_id, conversation_id FROM archived_traces WHERE conversation_id IS NOT NULL;
