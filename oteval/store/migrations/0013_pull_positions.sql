-- How far `oteval pull` has read each project of each backend, as JSON of that backend. A position
-- is committed together with the spans before it.
CREATE TABLE pull_positions (
    source VARCHAR NOT NULL,
    position VARCHAR NOT NULL
);
