-- Parquet files that spans and log records were moved to. One counts once it is `kept`, in the very
-- transaction that deletes its rows here; what is still `writing` after a crash is taken away again.
-- The path is relative to the folder of the database where it lies below that.
CREATE TABLE archived_files (
    file BIGINT NOT NULL,
    path VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    "rows" BIGINT,
    bytes BIGINT,
    last_seq BIGINT
);

-- In which files a trace is, looked up by `key`, which is md5_number_lower(trace_id); and its
-- conversations, so that their next turns find it.
CREATE TABLE archived_traces (
    "key" UBIGINT NOT NULL,
    trace_id VARCHAR NOT NULL,
    conversation_id VARCHAR,
    start_ns BIGINT,
    file BIGINT NOT NULL
);

-- What paging by conversation looks at, wherever the spans are.
CREATE VIEW all_conversations AS
    SELECT trace_id, conversation_id, start_ns FROM spans
    UNION ALL
    SELECT trace_id, conversation_id, start_ns FROM archived_traces;
