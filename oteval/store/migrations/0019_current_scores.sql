-- The current scores, for people's own queries: current_scores.py says what they are.
CREATE OR REPLACE VIEW current_scores AS
    SELECT * FROM scores ANTI JOIN superseded USING (trajectory_id, rev)
    QUALIFY row_number() OVER (PARTITION BY trajectory_id, evaluator ORDER BY seq DESC) = 1;

-- Those of stored runs, by the span that was judged.
CREATE OR REPLACE VIEW span_scores AS
    SELECT trace_id, span_id, evaluator, version, status, score, label, passed, comment, metadata,
           sample_p, time_ns, trajectory_id, rev
    FROM current_scores SEMI JOIN current_trajectories USING (trajectory_id);
